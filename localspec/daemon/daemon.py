"""The state that all connections share, with the completions that were answered or are under way.

Recent completions serve repeated requests, text typed along them, and feedback. Of each client are known the
speed of its typing, and for each path the newest request and the work that is done ahead of the next one.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import secrets
import time
from collections import OrderedDict, defaultdict
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from weakref import WeakValueDictionary

import msgspec

from localspec import home
from localspec.completion.gap import Gap
from localspec.config import Config, config_path, load_config
from localspec.daemon.chats import History, Session
from localspec.daemon.metrics import Metrics
from localspec.daemon.relay import Events, Receiver, Streams
from localspec.daemon.workers.pool import COMMAND, Pool, Program
from localspec.errors import Gone, InvalidOptions, LocalspecError
from localspec.protocol.messages import CompletionItem, CompletionSource, SettingsState
from localspec.protocol.options import Options
from localspec.protocol.requests import SessionChange, SessionEvent

KEPT = 250
"""answers that are kept"""
SHOWN = 1000
"""items for which feedback is accepted"""
TYPED = 128
"""most characters typed along an item"""
TAIL = 256
"""characters before an item that are learnt with it"""
DIGEST = 16

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Query:
    """The parameters of a completion, by which equal ones are found; ``count``: number of answers."""

    prefix: str
    suffix: str
    path: str | None
    language: str | None
    multiline: bool
    options: Options
    count: int = 1
    invoked: bool = False

    @cached_property
    def rest(self) -> bytes:
        """A digest of all but the prefix and the count."""
        rest = (self.suffix, self.path, self.language, self.multiline, self.invoked, self.options)
        return hashlib.blake2b(msgspec.msgpack.encode(rest), digest_size=DIGEST).digest()

    @property
    def gap(self) -> Gap:
        """The gap to be filled."""
        return Gap(self.prefix, self.suffix, self.language, self.path, self.multiline)

    def after(self, text: str) -> Query:
        """The automatic completion that follows once ``text`` was accepted."""
        return dataclasses.replace(self, prefix=self.prefix + text, count=1, invoked=False)


class Found(NamedTuple):
    """The texts of an answer, and their source."""

    texts: tuple[str, ...]
    source: CompletionSource


class Kept(NamedTuple):
    """The distinct texts of an answer for which ``wanted`` were requested."""

    texts: tuple[str, ...]
    wanted: int


@dataclasses.dataclass
class Shown:
    """An item sent to a client, with the text ``before`` it that is learnt with it; the user has accepted
    ``accepted`` characters of it."""

    before: str
    text: str
    path: str | None
    options: Options
    accepted: int = 0


class Recent(Generic[T]):
    """A cache by keys that drops the least recently used value."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[object, T] = OrderedDict()

    def get(self, key: object) -> T | None:
        if key in self._values:
            self._values.move_to_end(key)
        return self._values.get(key)

    def put(self, key: object, value: T) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._size:
            self._values.popitem(last=False)


class Suggestions:
    """The answers of this daemon, by the text before and after the cursor."""

    def __init__(self) -> None:
        self._answers: Recent[Kept] = Recent(KEPT)
        self._shown: Recent[Shown] = Recent(SHOWN)

    def keep(self, query: Query, texts: tuple[str, ...]) -> None:
        """Store an answer, which may have no texts."""
        self._answers.put((_digest(query.prefix), query.rest), Kept(texts, query.count))

    def find(self, query: Query) -> Found | None:
        """The answer to the same request, or the longest rest of one along which the user has typed since."""
        best: Found | None = None
        for typed, digest in _prefixes(query.prefix):
            texts = self._texts(digest, query) or ()
            rests = tuple(text[len(typed) :] for text in texts if text.startswith(typed))
            rests = tuple(rest for rest in rests if rest.strip())
            if rests and (best is None or len(rests[0]) > len(best.texts[0])):
                best = Found(rests, "type-through" if typed else "cache")
        if best is None and self._texts(_digest(query.prefix), query) is not None:
            return Found((), "cache")
        return best

    def _texts(self, digest: bytes, query: Query) -> tuple[str, ...] | None:
        """The texts kept for a digest; None if there are none, or fewer were requested than are now."""
        kept = self._answers.get((digest, query.rest))
        return None if kept is None or kept.wanted < query.count else kept.texts

    def show(self, query: Query, texts: tuple[str, ...]) -> tuple[CompletionItem, ...]:
        """Items of these texts, for which feedback is accepted."""
        items = tuple(CompletionItem(secrets.token_hex(8), text) for text in texts)
        # Without `remember` no text before the cursor is kept.
        before = "" if query.options.remember is False else query.prefix[-TAIL:]
        for item in items:
            self._shown.put(item.id, Shown(before, item.text, query.path, query.options))
        return items

    def shown(self, item: str) -> Shown:
        """An item by its id. Raises :class:`Gone`."""
        shown = self._shown.get(item)
        if shown is None:
            raise Gone(
                f"the completion {item[:40]!r} is not among the last {SHOWN}",
                "Send feedback for recent completions only.",
            )
        return shown


def _digest(text: str) -> bytes:
    return hashlib.blake2b(_bytes(text), digest_size=DIGEST).digest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _prefixes(prefix: str) -> list[tuple[str, bytes]]:
    """The splits of ``prefix`` into a digest of an earlier prefix and the text typed since; the prefix is
    hashed once."""
    start = max(0, len(prefix) - TYPED)
    hashed = hashlib.blake2b(_bytes(prefix[:start]), digest_size=DIGEST)
    found = [(prefix[start:], hashed.digest())]
    for at in range(start, len(prefix)):
        hashed.update(_bytes(prefix[at]))
        found.append((prefix[at + 1 :], hashed.copy().digest()))
    return found


GAP_S = 0.2
"""assumed seconds between two keystrokes, until some were measured"""
PAUSE_S = 1.0
"""seconds from which a gap is a pause, and is not counted in the speed of typing"""
SHARE = 0.2
"""weight of the newest measurement in the moving average"""
GAPS = 1.5
"""gaps without a keystroke after which the user has probably paused"""
LONGEST_S = 0.3
"""longest delay, in seconds"""


class Pace:
    """Averages of the time between one client's keystrokes and of a model's answers, in seconds.

    An answer that comes between two keystrokes is begun at once. A slower one would be cancelled at the next
    keystroke, again and again, at the cost of computing time: it is begun the later, the longer it takes, but
    not after the user has probably paused.
    """

    def __init__(self) -> None:
        self._gap = GAP_S
        self._answer = 0.0
        self._last: float | None = None

    def requested(self, now: float) -> None:
        """Note a request, which a keystroke has caused."""
        if self._last is not None and now - self._last < PAUSE_S:
            self._gap += SHARE * (now - self._last - self._gap)
        self._last = now

    def answered(self, seconds: float, *, whole: bool) -> None:
        """Note the ``seconds`` that a model has worked; ``whole``: until its answer was complete."""
        seconds = min(seconds, PAUSE_S)  # more makes no difference: the model may have been loaded first
        if whole:
            self._answer += SHARE * (seconds - self._answer)
        else:
            self._answer = max(self._answer, seconds)

    @property
    def wait(self) -> float:
        """The delay of the request that was just noted, in seconds."""
        return min(max(0.0, self._answer - self._gap), GAPS * self._gap, LONGEST_S)


MOST = 16
"""prefetches at once, of all clients together"""
CLEAR_S = 1.0
"""seconds that cancelled work may take to end"""


class Prefetched(Receiver):
    """A completion that is computed before it is requested."""

    task: asyncio.Task[None]

    def __init__(self, query: Query) -> None:
        super().__init__()
        self.query = query

    def serves(self, query: Query) -> bool:
        """True if it answers ``query``, or what ``query`` becomes as the user types on."""
        mine = self.query
        return mine.rest == query.rest and mine.prefix.startswith(query.prefix)


@contextmanager
def newest(of_path: dict[str, Receiver], path: str | None, work: Receiver) -> Iterator[None]:
    """Inside, ``work`` is the one for ``path``, instead of an older one, which is cancelled."""
    if path is None:
        yield
        return
    if (older := of_path.get(path)) is not None:
        older.cancel()
    of_path[path] = work
    try:
        yield
    finally:
        if of_path.get(path) is work:
            del of_path[path]


class Editor:
    """One client's completions."""

    def __init__(self) -> None:
        self.pace = Pace()
        self.requests: dict[str, Receiver] = {}
        self.ahead: dict[str, Receiver] = {}
        """prefetches, and requests that warm a prompt up"""


class Editors:
    """The clients with completions, by their outboxes, and all their prefetches."""

    def __init__(self) -> None:
        self._of: defaultdict[object, Editor] = defaultdict(Editor)
        self._prefetches: list[Prefetched] = []
        """the oldest first; some of them are cancelled, and about to end"""

    def of(self, client: object) -> Editor:
        return self._of[client]

    def prefetch(
        self, client: object, path: str, prefetched: Prefetched, work: Coroutine[Any, Any, None]
    ) -> None:
        """Start ``work``, which computes ``prefetched``, in a task; of too many the oldest is cancelled."""
        place = ExitStack()
        place.enter_context(newest(self.of(client).ahead, path, prefetched))
        running = [each for each in self._prefetches if not each.cancelled]
        if len(running) >= MOST:
            running[0].cancel()
        prefetched.task = asyncio.create_task(work)
        self._prefetches.append(prefetched)
        prefetched.task.add_done_callback(lambda _: self._prefetches.remove(prefetched))
        prefetched.task.add_done_callback(lambda _: place.close())

    async def clear(self) -> None:
        """Cancel all prefetches, and wait :data:`CLEAR_S` at most for their ends."""
        for each in self._prefetches:
            each.cancel()
        if self._prefetches:
            await asyncio.wait([each.task for each in self._prefetches], timeout=CLEAR_S)

    async def leave(self, client: object) -> None:
        """Forget a lost client, whose requests have ended; cancel its prefetches, and wait for their ends."""
        if (editor := self._of.pop(client, None)) is None:
            return
        left = [each for each in editor.ahead.values() if isinstance(each, Prefetched)]
        for each in left:
            each.cancel()
        if left:
            await asyncio.wait([each.task for each in left])


class Settings:
    """The settings as the daemon has read them at its start.

    The daemon compares them with the file that it has read: a client with another environment may have
    another ``config.toml``.
    """

    def __init__(self, config: Config) -> None:
        self._path = config_path()
        self._read = _encoded(config)
        self._seen: object = None
        self._state: SettingsState | None = None

    def state(self) -> SettingsState:
        """The file's state compared with these settings; it is read again only if it was changed."""
        seen = home.stamp_of(self._path)
        if self._state is None or seen != self._seen:
            self._seen = seen
            try:
                self._state = "current" if _encoded(load_config(self._path)) == self._read else "changed"
            except InvalidOptions:
                self._state = "broken"
        return self._state


def _encoded(config: Config) -> bytes:
    """An encoding that is equal for files with the same settings, but for ``auto_pull``, which clients read
    themselves; the order of sections matters."""
    return msgspec.json.encode(msgspec.structs.replace(config, auto_pull="ask"))


class Client(Protocol):
    """The methods by which the daemon ends a connection."""

    async def end_requests(self) -> None:
        """Cancel every request, and wait until they are answered."""

    async def close(self, code: int, reason: str) -> None:
        """Send the queued messages, then close."""


class Daemon:
    """Configuration, workers, history, metrics and connections; setting ``stopping`` ends it."""

    def __init__(self, config: Config, worker: Program = COMMAND) -> None:
        self.config = config
        self.settings = Settings(config)
        self.metrics = Metrics()
        self.events = Events()
        self.pool = Pool(config, self.metrics, self.events, worker)
        self.history = History(home.history_path())
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """the lock of each session, while it is held or awaited"""
        self.busy: set[object] = set()
        """requests and streams that need a model, running or waiting"""
        self.streams = Streams(config.daemon.grace_s, self.busy)
        self.suggestions = Suggestions()
        self.editors = Editors()
        self.connections: set[Client] = set()
        self.merging = asyncio.Lock()
        """held while options are merged, which keeps the order of requests"""
        self.memory_turn = asyncio.Lock()
        """held while the n-gram memory's files are changed"""
        self.http: str | None = None
        """the address of the HTTP server while it listens"""
        self.http_problem: LocalspecError | None = None
        """the reason why it does not, though it should"""
        self.http_flag = False
        """True if ``--http`` was given, which overrides the settings"""
        self.stopping = asyncio.Event()
        self.started = time.monotonic()
        self.socket = ""
        self.url: str | None = None

    def turn_of(self, session: Session) -> asyncio.Lock:
        """The lock of a session, which answers one message at a time."""
        return self._turns.setdefault(session.id, asyncio.Lock())

    def publish(self, session: Session, change: SessionChange) -> None:
        """Publish a change of a session, unless it is private."""
        if not session.private:
            self.events.publish(SessionEvent(session.id, change))
