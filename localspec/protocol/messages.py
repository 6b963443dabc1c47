"""The wire's methods and notifications, each defined once."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from localspec.protocol.jsonrpc import (
    INVALID_PARAMS,
    LONGEST_PATH,
    METHOD_NOT_FOUND,
    Call,
    FilePath,
    Id,
    Identity,
    Language,
    Name,
    Params,
    Place,
    ProtocolFault,
    TokenId,
)
from localspec.protocol.options import BackendName, Options, readable, unknown_key
from localspec.protocol.requests import (
    ChatPrompt,
    Degraded,
    Delta,
    File,
    Message,
    Result,
    SessionEvent,
    Stats,
    ToolCall,
    ToolChoice,
    Tools,
)

PROTOCOL = 1
FULL = "Too many connections are open."
"""text of the HTTP status 503 for a client beyond the limit of connections"""
SUBPROTOCOL = "localspec.v1"

SuggestionEvent = Literal["shown", "accepted", "partial", "dismissed"]
CompletionSource = Literal["model", "cache", "type-through"]
Status = Literal["streaming", "complete", "cancelled", "failed"]
MessageId = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Content = Annotated[str, Meta(min_length=1)]


class ClientInfo(Params):
    name: Annotated[str, Meta(max_length=200)]
    version: Annotated[str, Meta(max_length=200)]


class Initialize(Params, forbid_unknown_fields=False):
    """Unknown fields are accepted: a client of another protocol gets ``version_skew`` instead of a fault."""

    protocol: int
    client: ClientInfo


class NoParams(Params):
    """No parameters."""


class DaemonShutdown(Params):
    """With ``if_idle`` a busy daemon keeps running, and answers ``engine_busy``."""

    if_idle: bool = False


class ModelLoad(Params):
    """``keep_alive_s``: longest idle time, instead of the configured one; 0: for ever. ``workspace``: the
    directory whose settings apply."""

    model: Name | None = None
    draft: Name | None = None
    backend: BackendName | None = None
    workspace: FilePath | None = None
    keep_alive_s: Annotated[float, Meta(ge=0, le=1_000_000_000)] | None = None


class ModelUnload(Params):
    """Without a ``model``: all."""

    model: Name | None = None


Milliseconds = Annotated[int, Meta(ge=1, le=600_000)]


class Timed(Params, kw_only=True):
    """Deadlines in milliseconds: for the whole request, for the time until the first token, and for the time
    from then on; the answer then is the text so far."""

    max_ms: Milliseconds | None = None
    max_prompt_ms: Milliseconds | None = None
    max_predict_ms: Milliseconds | None = None


class Generate(Timed):
    """Exactly one of ``prompt``, ``tokens`` and ``messages``; ``raw``: the prompt without the chat template.

    ``tokens`` are continued as they are. ``prefilled``: the last message is the assistant's, and the answer
    goes on after it. ``variables`` are given to the chat template. ``tools`` and the fields after it are
    those of :class:`ChatPrompt`. ``progress``: ``stream/progress`` of short prompts, too, the first one
    before anything is read."""

    prompt: str | None = None
    tokens: Annotated[tuple[TokenId, ...], Meta(max_length=1 << 20)] | None = None
    messages: tuple[Message, ...] | None = None
    raw: bool = False
    prefilled: bool = False
    variables: dict[str, Any] = {}
    tools: Tools = ()
    tool_choice: ToolChoice = "auto"
    tool: Identity | None = None
    parallel_tool_calls: bool = True
    progress: bool = False
    options: Options = Options()


Tokenizable = (
    Annotated[str, Meta(max_length=1 << 18)]
    | Annotated[tuple[TokenId, ...], Meta(max_length=1 << 18)]
    | ChatPrompt
)


class Tokenize(Params):
    """The tokens of a text, or of a chat through the model's template; tokens are returned as they are.
    ``start``: with the token that texts begin with; ``special``: names of special tokens are read as these
    tokens; ``pieces``: with the bytes of each token."""

    text: Tokenizable
    model: Name | None = None
    start: bool = False
    special: bool = False
    pieces: bool = False


Trigger = Literal["automatic", "invoked"]
"""origin of a completion: the editor by itself, or a command of the user, which also gets unsure text"""


class CompletionInline(Timed):
    """At a deadline the answer is the text so far, in whole lines."""

    prefix: str
    suffix: str
    language: Language | None = None
    path: FilePath | None = None
    extra: tuple[File, ...] = ()
    n: Annotated[int, Meta(ge=1, le=8)] = 1
    multiline: bool = True
    trigger: Trigger = "automatic"
    options: Options = Options()


class CompletionFeedback(Params):
    """The fate of an item; ``chars`` of it, in code points, were accepted (``partial``)."""

    item: Identity
    event: SuggestionEvent
    chars: Annotated[int, Meta(ge=0)] | None = None


class CompletionWarm(Params):
    """Prefill a prompt at background priority before its completion is requested; a completion of the same
    ``path`` ends the prefill."""

    prefix: str
    suffix: str
    path: FilePath | None = None
    language: Language | None = None
    extra: tuple[File, ...] = ()
    options: Options = Options()


class MemoryForget(Params):
    """Forget what was learnt from ``source``, or in ``workspace``, or from ``source`` in ``workspace``; with
    neither, everything."""

    workspace: Place | None = None
    source: Annotated[str, Meta(min_length=1, max_length=LONGEST_PATH)] | None = None


class MemoryPrime(Params):
    """Learn files, directories and texts, into the tables of their git roots or into ``workspace``'s."""

    paths: Annotated[tuple[Place, ...], Meta(max_length=256)] = ()
    texts: tuple[File, ...] = ()
    workspace: Place | None = None


class SessionOpen(Params):
    options: Options = Options()
    system: str | None = None
    private: bool = False
    once: bool = False


class SessionQuery(Params):
    """Sessions with ``query`` in their title or a message, ignoring case; without it, all."""

    query: Annotated[str, Meta(max_length=1000)] = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 200
    offset: Annotated[int, Meta(ge=0, le=2**31)] = 0


class SessionId(Params):
    session: Identity


class SessionRename(SessionId):
    title: Annotated[str, Meta(min_length=1, max_length=200)]


class SessionConfigure(SessionId):
    """``options`` replace all of the session's."""

    options: Options


class SessionFork(SessionId):
    """Copy up to and including ``message``; without it, all messages."""

    message: MessageId | None = None


Instead = Literal["call", "words"]


class ChatTurn(SessionId, kw_only=True):
    """The answer may call ``tools``: it then ends with ``tool_calls``, and goes on by ``chat/results``."""

    tools: Tools = ()
    options: Options = Options()


class ChatSend(ChatTurn, kw_only=True):
    content: Content


class ChatEdit(ChatSend, kw_only=True):
    """``content`` replaces the user's ``message``; the messages after it are dropped."""

    message: MessageId


class ChatRegenerate(ChatTurn, kw_only=True):
    """Answer anew: the user's ``message``, or that before the answer ``message``; else the last one.
    ``instead`` replaces the last answer alone: by a call of one of the tools, or by words from the results of
    the calls before it, without tools."""

    message: MessageId | None = None
    instead: Instead | None = None


class CallResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The result of the tool call of this id, or its failure in words."""

    tool_call_id: Identity
    content: str


class ChatResults(ChatTurn, kw_only=True):
    """Go on with an answer that ended with calls: ``results`` has one for each of them, in their order.
    ``instead``: go on as in :class:`ChatRegenerate`."""

    instead: Instead | None = None
    results: Annotated[tuple[CallResult, ...], Meta(min_length=1, max_length=1024)]


class StreamResume(Params):
    """The deltas after number ``after_seq`` (-1: from the first), and the end."""

    stream: Identity
    after_seq: Annotated[int, Meta(ge=-1, le=2**63 - 1)] = -1


class CancelRequest(Params):
    id: Id


METHODS: dict[str, type[Params]] = {
    "initialize": Initialize,
    "models/list": NoParams,
    "models/load": ModelLoad,
    "models/unload": ModelUnload,
    "session/open": SessionOpen,
    "session/list": SessionQuery,
    "session/get": SessionId,
    "session/delete": SessionId,
    "session/rename": SessionRename,
    "session/configure": SessionConfigure,
    "session/fork": SessionFork,
    "chat/send": ChatSend,
    "chat/edit": ChatEdit,
    "chat/regenerate": ChatRegenerate,
    "chat/results": ChatResults,
    "stream/resume": StreamResume,
    "generate": Generate,
    "tokenize": Tokenize,
    "completion/inline": CompletionInline,
    "completion/feedback": CompletionFeedback,
    "completion/warm": CompletionWarm,
    "memory/stats": NoParams,
    "memory/forget": MemoryForget,
    "memory/prime": MemoryPrime,
    "events/subscribe": NoParams,
    "metrics": NoParams,
    "daemon/status": NoParams,
    "daemon/shutdown": DaemonShutdown,
    "$/cancelRequest": CancelRequest,
}


class ServerInfo(msgspec.Struct, frozen=True):
    name: str
    version: str


class WireLimits(msgspec.Struct, frozen=True):
    max_frame: int
    max_in_flight: int


SettingsState = Literal["current", "changed", "broken"]
"""``config.toml`` compared with the settings that the daemon has read from it"""


class Initialized(msgspec.Struct, frozen=True):
    protocol: int
    server: ServerInfo
    limits: WireLimits
    models: tuple[str, ...]
    settings: SettingsState = "current"


class Placement(msgspec.Struct, frozen=True):
    """The last ``layers`` of the ``of`` that a model has, with the output as one, are on these GPUs, without
    the experts of ``cpu_experts`` of them."""

    devices: tuple[str, ...]
    layers: int
    of: int
    cpu_experts: int = 0


class ModelDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One model on this disk; ``problem`` is why it cannot be loaded, ``remedy`` what to do. ``names`` stand
    for the model, the preferred one first; ``also``: other paths of the same content."""

    id: str
    path: str
    format: Literal["gguf", "mlx"]
    backend: str
    architecture: str | None = None
    parameters: int | None = None
    quantisation: str | None = None
    size: int
    context: int | None = None
    vocab_fp: str | None = None
    fim: bool = False
    loaded: bool = False
    placement: Placement | None = None
    """of a loaded model, as in :class:`LoadedModel`"""
    problem: str | None = None
    remedy: str | None = None
    store: str | None = None
    names: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    parts: int = 1
    """files of weights"""
    title: str | None = None
    """name in the file's metadata"""
    template: bool = False
    """True if it has a chat template"""


class StoreDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A place where models are searched; ``problem`` is why it cannot be read in full."""

    name: str
    path: str
    problem: str | None = None
    remedy: str | None = None


class ModelList(msgspec.Struct, frozen=True):
    models: tuple[ModelDescription, ...]
    stores: tuple[StoreDescription, ...] = ()


class CompletionItem(msgspec.Struct, frozen=True):
    id: str
    text: str


class Completions(msgspec.Struct, frozen=True):
    """``source`` of the answer: the model; the cache, of an earlier answer or a prefetched one; or the rest
    of an item along which the user types. ``reprefilled_tokens`` of the prompt were not cached.
    ``elapsed_ms``: from the request to this answer, in the daemon."""

    items: tuple[CompletionItem, ...]
    stats: Stats
    result: Result
    source: CompletionSource = "model"
    reprefilled_tokens: int = 0
    elapsed_ms: float = 0.0


class Tokenized(msgspec.Struct, frozen=True, omit_defaults=True):
    """The tokens of a text, and the bytes of each (base64 on the wire) if requested."""

    tokens: tuple[int, ...]
    pieces: tuple[bytes, ...] = ()


class Warmed(msgspec.Struct, frozen=True):
    """Tokens of the prompt, and those of them that were not in the KV cache and were prefilled now."""

    prompt_tokens: int
    reprefilled_tokens: int


class LoadedDraft(msgspec.Struct, frozen=True):
    """A draft model in memory, its place on the disk, and the requests that use it."""

    model: str
    path: str
    running: int


class LoadedModel(msgspec.Struct, frozen=True):
    """``path``: the model's place on the disk, alike for all of its names. ``draft``: the draft model of its
    latest request."""

    model: str
    draft: str | None
    pid: int
    resident_bytes: int | None
    running: int
    backend: str = ""
    idle_left_s: float | None = None
    """seconds until it is unloaded if it stays unused; None: it is in use, or is not unloaded"""
    path: str = ""
    drafts: tuple[LoadedDraft, ...] = ()
    """the draft models that are loaded beside it"""
    reason: str = ""
    """the reason for the choice of the backend and of ``draft``"""
    n_ctx: int = 0
    """tokens of context of each sequence"""
    offloaded_bytes: int = 0
    """bytes of the target's weights in a GPU's memory"""
    sequences: int = 0
    """sequences that can be at work at once"""
    planned_bytes: int = 0
    """bytes of memory needed, by the plan"""
    placement: Placement | None = None
    """None: the machine has no GPU, or others share the model"""


class Unloaded(msgspec.Struct, frozen=True):
    models: tuple[str, ...]


class DaemonStatus(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    version: str
    protocol: int
    uptime_s: float
    socket: str
    resident_bytes: int | None
    connections: int
    running: int
    models: tuple[LoadedModel, ...]
    settings: SettingsState = "current"
    http: str | None = None
    """the address of the HTTP server while it listens"""
    http_problem: str | None = None
    """the reason why the HTTP server does not listen although it is enabled"""
    http_remedy: str | None = None
    """the sentence that says what to do about ``http_problem``"""
    history_problem: str | None = None
    """message if chats are kept in memory only, because the disk is full; else None"""


class DaemonMetrics(msgspec.Struct, frozen=True):
    totals: dict[str, float]
    prometheus: str


class TableStats(msgspec.Struct, frozen=True, kw_only=True):
    workspace: str | None
    """path; None: the user-wide table"""
    vocab_fp: str
    path: str
    bytes: int
    capacity: int
    """most entries"""
    entries: int
    occupancy: float
    last_use: float | None = None
    """the last change of its file, in seconds since 1970"""
    sources: dict[str, int] = {}
    """entries by source; those of a source whose name was lost are under the tag's number"""


class MemoryStats(msgspec.Struct, frozen=True):
    tables: tuple[TableStats, ...]


class Forgotten(msgspec.Struct, frozen=True):
    """The amount forgotten: n-grams of one source, else whole tables."""

    forgotten: int
    unit: Literal["tables", "n-grams"]


class Primed(msgspec.Struct, frozen=True):
    """The amount learnt; ``skipped`` files were not text."""

    files: int
    skipped: int
    tokens: int


class Pairing(msgspec.Struct, frozen=True):
    """The models and the proposer of a session, and the reason for the choice of the draft model."""

    target: str
    draft: str | None
    proposer: str
    backend: str
    reason: str
    placement: Placement | None = None


class SessionOpened(msgspec.Struct, frozen=True):
    session: str
    pairing: Pairing


class SessionConfigured(msgspec.Struct, frozen=True):
    """``pairing`` is None if model, draft and backend have not changed."""

    pairing: Pairing | None


class SessionForked(msgspec.Struct, frozen=True):
    session: str


class SessionSummary(msgspec.Struct, frozen=True):
    """``created`` and ``updated`` are seconds since 1970; ``once``: it was opened for a single question."""

    session: str
    title: str
    created: float
    updated: float
    messages: int
    once: bool


class SessionList(msgspec.Struct, frozen=True):
    sessions: tuple[SessionSummary, ...]


class StoredMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message; ``id`` is never reused, ``created`` is in seconds since 1970. ``tool_calls`` are those of
    an answer; a message of the role ``tool`` has the result of the call ``tool_call_id``. ``stream`` is the
    id, for ``stream/resume``, of an answer that is still generated after its client was lost."""

    id: int
    role: Literal["user", "assistant", "tool"]
    content: str
    status: Status
    created: float
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    stream: str | None = None


class SessionContent(msgspec.Struct, frozen=True, kw_only=True):
    session: str
    title: str
    options: Options
    system: str | None
    private: bool
    messages: tuple[StoredMessage, ...]


class StreamStarted(msgspec.Struct, frozen=True):
    """``stream`` is the id of the request's stream, for ``stream/resume``."""

    request: Id
    stream: str


class StreamProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """``fraction`` of a stage, 0 to 1. In ``prefill``, tokens of the prompt: ``total``, of which
    ``processed`` are in the KV cache by now and ``cached`` were there before."""

    request: Id
    stage: str
    fraction: float
    total: int = 0
    cached: int = 0
    processed: int = 0


class StreamDelta(Delta, frozen=True, kw_only=True):
    request: Id
    seq: int


class ModelProgress(msgspec.Struct, frozen=True):
    model: str
    stage: str
    fraction: float


class SpeculationDegraded(Degraded, frozen=True, rename={"source": "from"}):
    request: Id


NOTIFICATIONS: dict[str, Any] = {
    "stream/started": StreamStarted,
    "stream/progress": StreamProgress,
    "stream/delta": StreamDelta,
    "model/progress": ModelProgress,
    "speculation/degraded": SpeculationDegraded,
    "event": SessionEvent,
}


class Discovery(msgspec.Struct, frozen=True):
    """The content of the discovery file, and the output of ``localspec daemon start --json``."""

    pid: int
    version: str
    protocol: int
    socket: str


def params_of(call: Call) -> Any:
    """The call's typed parameters; raises :class:`ProtocolFault` (-32601, -32602)."""
    struct = METHODS.get(call.method)
    if struct is None:
        message = unknown_key("method", call.method[:40], list(METHODS))
        raise ProtocolFault(METHOD_NOT_FOUND, message, call.id)
    try:
        return msgspec.json.decode(call.params, type=struct)
    except msgspec.ValidationError as error:
        raise ProtocolFault(INVALID_PARAMS, f"{call.method}: {readable(error)}", call.id) from None
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise ProtocolFault(INVALID_PARAMS, f"{call.method}: {error}", call.id) from None


def check_params(method: str, params: object) -> Any:
    """Check the parameters of a request made in this process, as if decoded; raises what that raises."""
    try:
        return msgspec.convert(msgspec.to_builtins(params), METHODS[method])
    except msgspec.ValidationError as error:
        raise ProtocolFault(INVALID_PARAMS, f"{method}: {readable(error)}") from None
