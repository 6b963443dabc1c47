"""The client's public face: one connection to the daemon, a method for each of the wire's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, Unpack

from localspec._version import __version__
from localspec.client import discovery
from localspec.client.wire import Requester, Stream, Subscription, Wire, open_socket
from localspec.errors import DaemonUnavailable, EngineBusy, ShuttingDown
from localspec.protocol import messages as wire
from localspec.protocol.options import Options
from localspec.protocol.requests import File, Message, Result, Tool, ToolChoice

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

T = TypeVar("T")
NO_OPTIONS = Options()
NOTHING = wire.NoParams()
TURNS = {params: method for method, params in wire.METHODS.items() if method.startswith("chat/")}


class Deadlines(TypedDict, total=False):
    """Milliseconds: in all, until the first token, and from that on."""

    max_ms: int
    max_prompt_ms: int
    max_predict_ms: int


class Following(Deadlines, total=False):
    """``progress``: ``stream/progress`` of short prompts, too."""

    progress: bool


class Generating(Following, total=False):
    """``raw`` goes around the chat template; ``tokens`` are continued as they are; ``prefilled``: the answer
    goes on after the last message; ``variables`` are for the template; ``tools`` may be called."""

    raw: bool
    tokens: tuple[int, ...]
    prefilled: bool
    variables: dict[str, Any]
    tools: tuple[Tool, ...]
    tool_choice: ToolChoice
    tool: str | None
    parallel_tool_calls: bool


class Where(Deadlines, total=False):
    """Optional parameters of a completion besides its prefix and suffix."""

    language: str
    path: str
    extra: tuple[File, ...]
    n: int
    multiline: bool
    trigger: wire.Trigger


class Client:
    """An initialized connection; close it, or use it as ``async with``. Failures raise a
    :class:`~localspec.errors.LocalspecError` of the daemon's code; a lost daemon raises
    :class:`~localspec.errors.DaemonUnavailable` in every request that still runs."""

    def __init__(self, wire: Requester, welcome: wire.Initialized) -> None:
        self._wire = wire
        self.welcome = welcome
        self.kept_for = ""
        """the daemon's reason for not ending when it was to be replaced; empty if it gave none"""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.close()

    @property
    def outdated(self) -> bool:
        """True if the daemon is older than this client."""
        return _numbers(self.welcome.server.version) < _numbers(__version__)

    @property
    def replaceable(self) -> bool:
        """True if the daemon should be replaced: it is older than this client, or of the same version and
        ``config.toml`` has changed since it started."""
        is_ours = _numbers(self.welcome.server.version) == _numbers(__version__)
        return self.outdated or (is_ours and self.welcome.settings == "changed")

    @property
    def lost(self) -> bool:
        """True if the connection is closed, by either side: another client is needed then."""
        return self._wire.lost is not None

    async def close(self) -> None:
        """Close the connection; the daemon ends what was still running."""
        await self._wire.close()

    def generate(
        self,
        prompt: str | None = None,
        *,
        messages: tuple[Message, ...] | None = None,
        options: Options = NO_OPTIONS,
        **how: Unpack[Generating],
    ) -> Stream[Result]:
        """Answer a prompt or a conversation, or continue ``tokens``."""
        params = wire.Generate(prompt=prompt, messages=messages, options=options, **how)
        return self._wire.request("generate", params, Result)

    def chat(self, turn: wire.ChatTurn) -> Stream[Result]:
        """Stream the answer to a turn of a session: a message, an edit, the results of calls, or the last
        question again; see :class:`~localspec.protocol.messages.ChatTurn`."""
        return self._wire.request(TURNS[type(turn)], turn, Result)

    def resume(self, stream: str, after_seq: int = -1) -> Stream[Result]:
        """Resume a stream whose connection was lost, from its :attr:`Stream.name` and ``seq``. Another
        request that follows it fails with :class:`~localspec.errors.Gone`, and so does this one if the stream
        is no longer kept."""
        resumed = self._wire.request(
            "stream/resume", wire.StreamResume(stream=stream, after_seq=after_seq), Result
        )
        resumed.name, resumed.seq = stream, after_seq
        return resumed

    def complete(
        self, prefix: str, suffix: str = "", *, options: Options = NO_OPTIONS, **where: Unpack[Where]
    ) -> Stream[wire.Completions]:
        """Fill in the text between a prefix and a suffix; it comes whole, so there are no deltas."""
        params = wire.CompletionInline(prefix=prefix, suffix=suffix, options=options, **where)
        return self._wire.request("completion/inline", params, wire.Completions)

    def warm(self, params: wire.CompletionWarm) -> Stream[wire.Warmed]:
        """Prefill a completion's prompt before the completion is requested."""
        return self._wire.request("completion/warm", params, wire.Warmed)

    def open(
        self,
        *,
        system: str | None = None,
        private: bool = False,
        once: bool = False,
        options: Options = NO_OPTIONS,
    ) -> Stream[wire.SessionOpened]:
        """Open a session, ``once`` for one question, a private one without history; reports the loading."""
        params = wire.SessionOpen(options=options, system=system, private=private, once=once)
        return self._wire.request("session/open", params, wire.SessionOpened)

    def load(
        self, options: Options = NO_OPTIONS, *, keep_alive_s: float | None = None
    ) -> Stream[wire.LoadedModel]:
        """Load the model of these options before it is needed; it stays ``keep_alive_s`` seconds after its
        last use (0: for ever)."""
        names = ("model", "draft", "backend", "workspace")
        params = wire.ModelLoad(**{name: getattr(options, name) for name in names}, keep_alive_s=keep_alive_s)
        return self._wire.request("models/load", params, wire.LoadedModel)

    async def sessions(
        self, query: str = "", *, limit: int = 200, offset: int = 0
    ) -> tuple[wire.SessionSummary, ...]:
        """The stored sessions with ``query`` in their title or messages, the last used first."""
        params = wire.SessionQuery(query=query, limit=limit, offset=offset)
        return (await self.request("session/list", wire.SessionList, params)).sessions

    async def session(self, session: str) -> wire.SessionContent:
        return await self.request("session/get", wire.SessionContent, wire.SessionId(session=session))

    async def rename_session(self, session: str, title: str) -> None:
        await self.request("session/rename", wire.NoParams, wire.SessionRename(session=session, title=title))

    async def configure_session(self, session: str, options: Options) -> wire.Pairing | None:
        """Set all options of a session; loads another model first, and returns its pairing."""
        params = wire.SessionConfigure(session=session, options=options)
        return (await self.request("session/configure", wire.SessionConfigured, params)).pairing

    async def fork_session(self, session: str, message: int | None = None) -> str:
        """Copy a session's messages up to and including ``message`` (None: all); returns the new session."""
        params = wire.SessionFork(session=session, message=message)
        return (await self.request("session/fork", wire.SessionForked, params)).session

    async def delete_session(self, session: str) -> None:
        """Cancel the running answers of a session, and delete it with its messages."""
        await self.request("session/delete", wire.NoParams, wire.SessionId(session=session))

    async def models(self) -> tuple[wire.ModelDescription, ...]:
        return (await self.request("models/list", wire.ModelList)).models

    async def tokenize(self, params: wire.Tokenize) -> wire.Tokenized:
        return await self.request("tokenize", wire.Tokenized, params)

    async def unload(self, model: str | None = None) -> tuple[str, ...]:
        """Unload a model, or all; returns their names. Raises :class:`EngineBusy` for models in use."""
        return (await self.request("models/unload", wire.Unloaded, wire.ModelUnload(model=model))).models

    async def feedback(self, item: str, event: wire.SuggestionEvent, *, chars: int | None = None) -> None:
        """Report the fate of a completion's item; ``chars``: code points accepted of a partial one."""
        params = wire.CompletionFeedback(item=item, event=event, chars=chars)
        await self.request("completion/feedback", wire.NoParams, params)

    async def status(self) -> wire.DaemonStatus:
        return await self.request("daemon/status", wire.DaemonStatus)

    async def subscribe(self) -> Subscription:
        """Subscribe to changes of chats; replaces an earlier subscription."""
        subscription = Subscription()
        if self._wire.subscription is not None:
            self._wire.subscription.feed(None)
        self._wire.subscription = subscription
        await self.request("events/subscribe", wire.NoParams)
        return subscription

    async def forget(self, *, workspace: str | None = None, source: str | None = None) -> wire.Forgotten:
        """Forget a workspace, a source, a source in a workspace, or, without either, everything."""
        params = wire.MemoryForget(workspace=workspace, source=source)
        return await self.request("memory/forget", wire.Forgotten, params)

    def prime(
        self, *paths: str, texts: tuple[File, ...] = (), workspace: str | None = None
    ) -> Stream[wire.Primed]:
        """Learn files, directories and texts before they are needed; a cancel keeps what was learnt."""
        params = wire.MemoryPrime(paths=paths, texts=texts, workspace=workspace)
        return self._wire.request("memory/prime", params, wire.Primed)

    async def metrics(self) -> wire.DaemonMetrics:
        return await self.request("metrics", wire.DaemonMetrics)

    async def shutdown(self, *, if_idle: bool = False) -> None:
        """Stop the daemon, and wait until it has closed the connection. With ``if_idle`` a busy daemon keeps
        running, and :class:`EngineBusy` is raised."""
        await self.request("daemon/shutdown", wire.NoParams, wire.DaemonShutdown(if_idle=if_idle))
        await self.wait_closed()

    async def wait_closed(self) -> None:
        """Wait until the daemon has closed the connection, as it does when it stops."""
        await self._wire.wait_closed()

    async def request(self, method: str, type: type[T], params: object = NOTHING) -> T:
        """Call any method of the wire; returns the result, decoded as ``type``."""
        return await self._wire.request(method, params, type).result()


async def connect(
    *,
    start: bool = True,
    name: str = "localspec",
    on_start: Callable[[str], None] = lambda why: None,
    command: tuple[str, ...] = discovery.COMMAND,
) -> Client:
    """Connect to this user's daemon; with ``start``, start one if none runs, and replace an idle one that is
    older than this client, or whose ``config.toml`` has changed. ``on_start`` is called before ``command`` is
    started, with the reason if another daemon has ended for it. Raises :class:`DaemonUnavailable`,
    :class:`QueueFull`, :class:`VersionSkew`."""
    client, why = None, ""
    with contextlib.suppress(DaemonUnavailable):  # none listens
        client = await initialize(await open_socket(), name)
    if client is not None:
        if not (start and client.replaceable and client.welcome.settings != "broken"):
            return client
        why = "it is older than this command" if client.outdated else "config.toml has changed"
        if not await _stop_daemon(client):
            return client
    if not start:
        raise DaemonUnavailable("no daemon is running", "Run `localspec daemon start`.")
    on_start(why)
    await asyncio.to_thread(discovery.start_daemon, command)
    return await initialize(await open_socket(), name)


async def _stop_daemon(client: Client) -> bool:
    """Stop the daemon if it is idle; returns True if it has ended, by this request or another's."""
    try:
        await client.shutdown(if_idle=True)
    except EngineBusy as error:
        client.kept_for = error.message
        return False
    except (ShuttingDown, DaemonUnavailable):
        await client.wait_closed()
    return True


async def initialize(socket: ClientConnection, name: str) -> Client:
    """The client named ``name`` on an open connection. Raises :class:`VersionSkew`."""
    link = Wire(socket)
    params = wire.Initialize(protocol=wire.PROTOCOL, client=wire.ClientInfo(name=name, version=__version__))
    try:
        welcome: wire.Initialized = await link.request("initialize", params, wire.Initialized).result()
        link.max_frame = welcome.limits.max_frame
        return Client(link, welcome)
    except BaseException:
        await link.close()
        raise


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
