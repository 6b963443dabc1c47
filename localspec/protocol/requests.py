"""Requests to an engine, in process or through its worker: their settings, results and events.

The engine makes a request's events; a worker sends each of them, until the end, as the params of the
notification that belongs to it, which the daemon passes on. Other events are those a client subscribes to.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from localspec.protocol.jsonrpc import FilePath, Identity, Language
from localspec.protocol.options import Options

Count = Annotated[int, Meta(ge=0, le=100_000_000)]
ADDRESS = r"^[A-Za-z0-9_][\w.-]*:[0-9]{1,5}$"
Address = Annotated[str, Meta(pattern=ADDRESS, title="addresses such as 192.168.1.7:50052")]
Node = Annotated[
    str,
    Meta(
        pattern=r"^([A-Za-z0-9_][\w.-]*@)?[A-Za-z0-9_][\w.-]*$",
        title="names for ssh, such as mac-b or user@mac-b, or local",
    ),
]


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings for loading a model and for speculation. 0 means: chosen for this machine."""

    n_ctx: Count = 0
    """tokens of context per sequence; 0: the model's own, at most 8192"""
    parallel: Annotated[int, Meta(ge=0, le=64)] = 0
    """sequences at once, each with n_ctx tokens of cache; 0: up to 4, by weights and memory"""
    threads: Annotated[int, Meta(ge=0, le=1024)] = 0
    """CPU threads; 0: one per physical core"""
    gpu_layers: Annotated[int, Meta(ge=-1, le=10_000)] = -1
    """layers on the GPU and on the servers of rpc; -1: as many as fit there"""
    cpu_experts: Annotated[int, Meta(ge=-1, le=10_000)] = -1
    """first layers of a mixture of experts whose experts stay with the processor; -1: as many as must"""
    gpu_memory_mb: Annotated[int, Meta(ge=0, le=100_000_000)] = 0
    """MB of the GPUs' memory that a model may take; 0: all that is free"""
    prefill_chunk: Annotated[int, Meta(ge=0, le=4096)] = 0
    """tokens of prompt per forward, at least 2; 0: 256, on a GPU 512"""
    kv_bits: Literal[0, 4, 8] = 0
    """bits of a number in the cache; 0: as the model computes it"""
    ngram_min: Annotated[int, Meta(ge=1, le=5)] = 2
    """shortest match of prompt lookup, in tokens"""
    ngram_max: Annotated[int, Meta(ge=1, le=5)] = 5
    """length of the matches that prompt lookup searches for first, in tokens"""
    chat_cache_mb: Count = 1024
    """megabytes on disk for the caches of chats, so that they go on after a restart; 0: none"""
    memory: bool = True
    """keep an n-gram memory on disk, per workspace"""
    nodes: tuple[Node, ...] = ()
    """machines that hold shares of an MLX model beside this one, by their names for ssh"""
    rpc: tuple[Address, ...] = ()
    """machines that hold layers of a GGUF model beside this one, by HOST:PORT of `localspec rpc serve`"""
    rpc_public: bool = False
    """allow addresses of rpc outside private networks: servers have no authentication, and no encryption"""
    idle_measuring: bool = True
    """measure a model while it is idle; false, as with LOCALSPEC_IDLE=off: learn from requests"""

    @property
    def chunk(self) -> int:
        """The tokens of prompt per forward."""
        return max(2, self.prefill_chunk or 256)


Priority = Literal["completion", "chat", "background"]
"""the class of a request, the highest priority first"""
CLASSES: tuple[Priority, ...] = get_args(Priority)
PATIENCE_S: dict[Priority, float] = {"completion": 0.0, "chat": 0.25, "background": 2.0}
"""seconds without a step, or a turn on the CPU, after which one goes before those of a higher class"""
PAIRED = re.compile(r"(\\\\|\\ud[89ab]..\\ud[c-f]..)|\\ud[89a-f]..", re.IGNORECASE)
"""backslashes and characters in JSON; what is no group is half of a surrogate pair"""


def whole_characters(said: str) -> str:
    """JSON with U+FFFD in the place of each half of a surrogate pair, which stands for no character."""
    return PAIRED.sub(lambda found: found[1] or r"\ufffd", said)


class ToolCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call of a tool by the model; ``arguments`` is a JSON object as text."""

    id: Identity
    name: Identity
    arguments: str

    @property
    def object(self) -> dict[str, Any] | None:
        """The arguments; None if they are no JSON object: the answer was cut within them."""
        try:
            found = json.loads(whole_characters(self.arguments))
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


class Tool(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A function that the model may call; ``parameters`` is the JSON schema of its arguments. A ``name`` has
    the letters that are read as one in every family's calls."""

    name: Annotated[str, Meta(max_length=128, pattern=r"^[\w./-]+\Z")]
    description: str = ""
    parameters: dict[str, Any] = {}


Role = Literal["system", "user", "assistant", "tool"]


class Message(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One turn of a conversation. ``tool_calls`` and ``thinking`` are those of an assistant's turn; a turn of
    the role ``tool`` has the result of the call ``tool_call_id``."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: Identity = ""
    thinking: str = ""
    """the template decides which turns keep it, mostly those since the last question"""


MOST_TOOLS = 1024
"""tools of one chat"""
Tools = Annotated[tuple[Tool, ...], Meta(max_length=MOST_TOOLS)]
ToolChoice = Literal["auto", "none", "required"]


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another file's text, as context for a completion."""

    path: FilePath
    text: str


class TextPrompt(msgspec.Struct, frozen=True, tag="text"):
    """Continue a text as it is."""

    text: str


class TokenPrompt(msgspec.Struct, frozen=True, tag="tokens"):
    """Continue tokens as they are; nothing is put before them."""

    tokens: tuple[int, ...]


class ChatPrompt(msgspec.Struct, frozen=True, omit_defaults=True, tag="chat"):
    """Answer the last message, through the model's chat template. ``prefilled``: the last message is the
    beginning of the answer, which goes on after it. ``variables`` are given to the template besides its own.
    The answer may call ``tools``, must call one if ``tool_choice`` is ``required``, and then only ``tool`` if
    one is named; ``parallel_tool_calls``: also several."""

    messages: tuple[Message, ...]
    prefilled: bool = False
    variables: dict[str, Any] = {}
    tools: Tools = ()
    tool_choice: ToolChoice = "auto"
    tool: Identity | None = None
    parallel_tool_calls: bool = True


class FimPrompt(msgspec.Struct, frozen=True, tag="fim"):
    """Fill in the text between ``prefix`` and ``suffix``.

    ``extra`` are pieces of other files, the most important first. ``tidy`` ends the text where an editor's
    completion ends (:class:`localspec.completion.stopping.StopRule`), with its line unless ``multiline``, and
    at temperature 0 where the model is unsure, unless the user ``invoked`` it; the text is then sent at the
    end only."""

    prefix: str
    suffix: str
    path: FilePath | None = None
    language: Language | None = None
    extra: tuple[File, ...] = ()
    multiline: bool = True
    tidy: bool = False
    invoked: bool = False


Prompt = TextPrompt | TokenPrompt | ChatPrompt | FimPrompt


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One generation. ``max_ms`` is a deadline over queue, prefill and decode, in milliseconds;
    ``max_prompt_ms`` one for the time before the first token, ``max_predict_ms`` one from then on. ``source``
    is the request's origin, such as ``chat:<session>``: what the memory learns of it, and its saved KV cache,
    can be forgotten by that name. ``priority``: None for that of its prompt, ``completion`` for FIM and
    ``chat`` for all others."""

    prompt: Prompt
    options: Options = Options()
    max_ms: int | None = None
    max_prompt_ms: int | None = None
    max_predict_ms: int | None = None
    source: str = "run"
    priority: Priority | None = None
    progress: bool = False
    """report progress of every prompt, from before its first forward; else of those of several pieces"""

    @property
    def goes_as(self) -> Priority:
        return self.priority or ("completion" if isinstance(self.prompt, FimPrompt) else "chat")


FinishReason = Literal["stop", "stop_string", "length", "context_full", "cancelled", "deadline", "tool_calls"]


class Likely(msgspec.Struct, frozen=True):
    """A token that was probable at a position, and its bytes (base64 on the wire)."""

    id: int
    piece: bytes
    logprob: float


class Token(msgspec.Struct, frozen=True, omit_defaults=True):
    """One token of the answer. ``source`` is ``"target"`` or the name of the proposer whose draft was
    accepted. ``chars`` is the number of code points of the delta's text that this token ends: 0 inside a
    character. ``top``: the most probable tokens at its position, the most probable first, as many as
    ``top_logprobs``."""

    id: int
    source: str
    chars: int
    logprob: float | None = None
    top: tuple[Likely, ...] = ()


class ProposerStats(msgspec.Struct):
    """One proposer's share of a request; ``seconds`` is time spent proposing. That of ``grammar`` has the
    tokens that were forced, which no other figure counts as drafted."""

    drafted: int = 0
    accepted: int = 0
    seconds: float = 0.0


class Stats(msgspec.Struct, kw_only=True):
    """Statistics of speculation for one request.

    ``accepted / drafted`` is token-weighted; ``tokens_per_round`` counts rounds without a draft too.
    ``exactness``, at temperature 0 or with a seed: ``exact`` if the text is that of plain decoding with the
    same option; ``near-ties`` if ``rounded_tokens`` of it were chosen from rows that may be rounded
    otherwise, so that a near-tie may have been decided otherwise. ``truncated_messages`` old messages did not
    fit the context. ``untemplated``: the model has no chat template, and continued the plain text of the
    messages. ``choices`` counts the rounds by proposer, or by the reason for no draft. ``time_saved_s`` is
    the time of plain decoding, at the measured cost of a plain step, less the time taken; null until that
    cost is known, and where it is within 2 % of the time taken and what the forwards over drafts deviated
    from their usual time."""

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    acceptance_rate: float | None = None
    tokens_per_round: float | None = None
    proposers: dict[str, ProposerStats] = msgspec.field(default_factory=dict)
    k_histogram: dict[int, int] = msgspec.field(default_factory=dict)
    exactness: Literal["exact", "near-ties"] | None = None
    rounded_tokens: int = 0
    truncated_messages: int = 0
    untemplated: bool = False
    speculation_off_reason: str | None = None
    choices: dict[str, int] = msgspec.field(default_factory=dict)
    time_saved_s: float | None = None
    queued_s: float = 0.0
    ttft_s: float | None = None
    decode_tokens_per_s: float | None = None


class Result(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The end of a request: ``run --json``, and the wire's terminal response. Of ``prompt_tokens`` the first
    ``cached_tokens`` were in the KV cache already. ``stop_text``: the one of ``stop`` that the model wrote.
    ``text`` is the answer without the ``thinking`` before it."""

    text: str
    finish_reason: FinishReason
    model: str
    draft: str | None
    backend: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    stats: Stats
    stop_text: str | None = None
    thinking: str = ""
    thinking_tokens: int = 0
    tool_calls: tuple[ToolCall, ...] = ()

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls to be made; none of an answer that was cut."""
        return self.tool_calls if self.finish_reason == "tool_calls" else ()


Channel = Literal["answer", "thinking", "call"]
"""what a text belongs to: the answer, the thoughts before it, or the arguments of a tool call"""


class CallBegun(msgspec.Struct, frozen=True):
    """The tool call that a delta's text belongs to: its position in the answer, its id and its tool."""

    index: int
    id: str
    name: str


class Delta(msgspec.Struct, frozen=True, omit_defaults=True):
    """New text of an answer, whole code points only, and the tokens that make it up. Markup around thoughts
    and calls is in no text; its tokens have 0 ``chars``."""

    text: str
    tokens: tuple[Token, ...]
    channel: Channel = "answer"
    call: CallBegun | None = None
    """of the channel ``call``"""


Chunk = Delta
"""its name in the Python API"""


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens of the prompt: ``total``, of which ``processed`` are in the KV cache, ``cached`` from before."""

    total: int = 0
    cached: int = 0
    processed: int = 0

    @property
    def fraction(self) -> float:
        """The part of the prompt that is in the KV cache, 0 to 1."""
        return self.processed / self.total if self.total else 1.0


class Degraded(msgspec.Struct, frozen=True, rename={"source": "from"}):
    """The proposer ``source`` failed; the request goes on with ``to``."""

    source: str
    to: str
    reason: str


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The end of a request."""

    result: Result


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The end of a request with an error; other requests go on."""

    error: dict[str, str]


StreamEvent = Delta | Progress | Degraded
"""an event before the end of its request"""
SessionChange = Literal["opened", "changed", "renamed", "deleted", "unsaved"]


class SessionEvent(msgspec.Struct, frozen=True, tag_field="kind", tag="session"):
    """A change of a chat: opened, new messages or options, renamed, deleted; ``unsaved``: an answer could not
    be stored. There are no events of private chats."""

    session: str
    change: SessionChange
