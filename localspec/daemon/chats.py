"""The chats: sessions and their messages, in one SQLite database; private ones in memory only."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import msgspec
from filelock import FileLock, Timeout
from msgspec.structs import replace

from localspec import errors
from localspec.errors import DaemonUnavailable, DiskFull, InvalidOptions, LocalspecError, SessionNotFound
from localspec.protocol import messages as wire
from localspec.protocol.messages import CallResult, Status, StoredMessage
from localspec.protocol.options import Options
from localspec.protocol.requests import Message, ToolCall

CLAIM_S = 10.0
"""seconds to wait for the history of a daemon that is ending"""
TITLE_CHARS = 60
ONCE = "run-"
"""beginning of the ids of sessions for a single question"""
CALLS = msgspec.json.Decoder(tuple[ToolCall, ...])
SETTINGS = (
    "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; "
    "PRAGMA foreign_keys = ON; PRAGMA secure_delete = ON; PRAGMA temp_store = MEMORY"
)
FORMAT = 4
"""``user_version`` of the file"""
# A dropped message's id is never reused: a client that still has it must not change another message.
# ``used`` counts uses: the clock may go back. ``tool_calls`` are those of an answer, as JSON, and
# ``tool_call_id`` the call that a message of the role `tool` has the result of.
SCHEMA = f"""
    BEGIN;
    CREATE TABLE sessions (
        id TEXT PRIMARY KEY, title TEXT NOT NULL, created REAL NOT NULL, updated REAL NOT NULL,
        options TEXT NOT NULL, system TEXT, used INTEGER NOT NULL
    );
    CREATE TABLE messages (
        id INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL REFERENCES sessions ON DELETE CASCADE,
        role TEXT NOT NULL, content TEXT NOT NULL, status TEXT NOT NULL, created REAL NOT NULL,
        tool_calls TEXT NOT NULL DEFAULT '[]', tool_call_id TEXT NOT NULL DEFAULT ''
    );
    CREATE INDEX messages_by_session ON messages (session, id);
    CREATE INDEX sessions_by_use ON sessions (used);
    PRAGMA user_version = {FORMAT};
    COMMIT;
"""
LISTED = """
    SELECT s.id, s.title, s.created, s.updated,
        (SELECT count(*) FROM messages m WHERE m.session = s.id AND m.content != '')
    FROM sessions s
    WHERE :query = '' OR says(s.title, :query)
        OR EXISTS (SELECT 1 FROM messages m WHERE m.session = s.id AND says(m.content, :query))
    ORDER BY s.used DESC, s.rowid DESC LIMIT :limit OFFSET :offset
"""

NEXT_USE = "(SELECT coalesce(max(used), 0) + 1 FROM sessions)"
T = TypeVar("T")
DAMAGED = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
STUCK = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
"""errors of a full disk where SQLite cannot write a file beside the database"""
ROOM = 1 << 16
"""bytes of the smallest such file, the index of the write-ahead log"""
DAMAGE_REMEDY = "Run `localspec daemon restart`: that sets the file aside and begins a new one."
FAILURE_REMEDY = "End other programs that use it, and check its permissions, then try again."

log = logging.getLogger(__name__)


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a chat, without its messages."""

    id: str
    title: str
    options: Options
    system: str | None
    private: bool

    @property
    def source(self) -> str:
        """The name of the chat as a source of saved caches and learnt n-grams."""
        return f"chat:{self.id}"


class TurnRequest(NamedTuple):
    """A request for an answer: to new ``content``, which replaces the user's ``message`` if one is given.
    With ``results`` of its calls the last answer goes on. Without either, the answer to ``message``, else the
    last one, is generated anew; with ``instead`` the calls before it and their results stay."""

    content: str | None = None
    message: int | None = None
    results: tuple[CallResult, ...] = ()
    instead: wire.Instead | None = None


class StoredTurn(NamedTuple):
    """A turn as stored: the answered ones ``before``, its own messages ``now``, which are the question and
    then calls with their results, and the row of the ``answer`` to come."""

    before: tuple[Message, ...]
    now: tuple[Message, ...]
    answer: int


class ChatStore:
    """One SQLite database; used from one thread."""

    def __init__(self, path: str) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        try:
            self._db.create_function(
                "says", 2, lambda text, query: query in text.casefold(), deterministic=True
            )
            self._db.executescript(SETTINGS)
            (verdict,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                damaged = sqlite3.DatabaseError(verdict)
                damaged.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
                raise damaged
            self._create()
            # Answers that were still streaming ended with the daemon that streamed them.
            self._db.execute("UPDATE messages SET status = 'failed' WHERE status = 'streaming'")
        except BaseException:
            self._db.close()
            raise

    def _create(self) -> None:
        """Create the tables in a new file. Raises :class:`LocalspecError` for a file of another format."""
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version == 0:
            self._db.executescript(SCHEMA)
        elif version != FORMAT:
            message = f"the chat history is another version's: its format is {version}, not {FORMAT}"
            raise LocalspecError(message, "Install that version again, or move the file away.")

    def close(self) -> None:
        self._db.close()

    def add(self, session: Session) -> None:
        now, options = time.time(), _encode(session.options)
        row = (session.id, session.title, now, now, options, session.system)
        self._db.execute(f"INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, {NEXT_USE})", row)

    def find(self, id: str, private: bool) -> Session | None:
        row = self._db.execute("SELECT title, options, system FROM sessions WHERE id = ?", (id,)).fetchone()
        if row is None:
            return None
        options = msgspec.json.decode(row[1], type=Options)
        return Session(id=id, title=row[0], options=options, system=row[2], private=private)

    def summaries(self, query: wire.SessionQuery) -> tuple[wire.SessionSummary, ...]:
        wanted = {"query": query.query.casefold(), "limit": query.limit, "offset": query.offset}
        rows = self._db.execute(LISTED, wanted)
        return tuple(wire.SessionSummary(*(*row, row[0].startswith(ONCE))) for row in rows)

    def rename(self, id: str, title: str) -> None:
        self._change("UPDATE sessions SET title = ? WHERE id = ?", title, id)

    def configure(self, id: str, options: Options) -> None:
        self._change("UPDATE sessions SET options = ? WHERE id = ?", _encode(options), id)

    def delete(self, id: str) -> None:
        """Delete a session with all its messages; no trace of them stays in the files."""
        self._change("DELETE FROM sessions WHERE id = ?", id)
        self._wipe()

    def fork(self, origin: Session, copy: Session, message: int | None) -> None:
        """Add ``copy`` with the messages of ``origin`` up to and including ``message`` (None: all). Raises
        :class:`SessionNotFound` if ``origin`` was deleted meanwhile, and :class:`MessageNotFound`."""
        with self._transaction():
            if self.find(origin.id, origin.private) is None:
                raise SessionNotFound(f"there is no session {origin.id[:40]!r}")
            if message is not None:
                _place(self.messages(origin.id), message)
            self.add(copy)
            self._db.execute(
                "INSERT INTO messages (session, role, content, status, created, tool_calls, tool_call_id) "
                "SELECT ?, role, content, CASE status WHEN 'streaming' THEN 'cancelled' ELSE status END, "
                "created, tool_calls, tool_call_id FROM messages WHERE session = ? AND id <= ? ORDER BY id",
                (copy.id, origin.id, 2**63 - 1 if message is None else message),
            )

    def messages(self, session: str) -> tuple[StoredMessage, ...]:
        rows = self._db.execute(
            "SELECT id, role, content, status, created, tool_calls, tool_call_id FROM messages "
            "WHERE session = ? ORDER BY id",
            (session,),
        )
        return tuple(
            StoredMessage(id, role, content, status, created, CALLS.decode(calls), call)
            for id, role, content, status, created, calls, call in rows
        )

    def begin_turn(self, session: str, turn: TurnRequest) -> StoredTurn:
        """Store the question or the results, and an empty answer; drop the messages that ``turn`` replaces.
        Raises :class:`SessionNotFound`, :class:`MessageNotFound`, and :class:`InvalidOptions` for a message
        that cannot be edited or answered, and for results of other calls; then nothing is changed."""
        with self._transaction():
            stored = self.messages(session)
            if turn.results:
                _check_results(stored, turn.results)
            question, at = _question(stored, turn)
            first = stored[0].content if stored else ""
            before = tuple(_select_answered(stored[:at]))
            # A title that was taken from a dropped message is replaced.
            titles = ("" if at else _title(first), _title(question))
            self._change(
                "UPDATE sessions SET title = CASE WHEN title IN ('', ?) THEN ? ELSE title END, updated = ?, "
                f"used = {NEXT_USE} WHERE id = ?",
                *(*titles, time.time(), session),
            )
            kept = stored if turn.results else stored[: at + (turn.content is None)]
            if turn.instead is not None and not turn.results:
                kept = stored[:-1] if stored[-1].role == "assistant" else stored
            dropped = stored[len(kept) :]
            if dropped:
                self._db.execute(
                    "DELETE FROM messages WHERE session = ? AND id >= ?", (session, dropped[0].id)
                )
            # An earlier answer whose end could not be stored.
            self._db.execute(
                "UPDATE messages SET status = 'failed' WHERE session = ? AND status = 'streaming'", (session,)
            )
            new = [Message("tool", each.content, (), each.tool_call_id) for each in turn.results]
            if turn.content is not None:
                new = [Message("user", question)]
            for each in new:
                self._insert(session, each, "complete")
            answer = self._insert(session, Message("assistant", ""), "streaming")
        if dropped:
            self._wipe()
        return StoredTurn(before, (*map(_message, kept[at:]), *new), answer)

    def write_answer(self, answer: int, text: str, status: Status, calls: tuple[ToolCall, ...] = ()) -> None:
        self._db.execute(
            "UPDATE messages SET content = ?, status = ?, tool_calls = ? WHERE id = ?",
            (text, status, _encode(calls), answer),
        )

    def _insert(self, session: str, message: Message, status: Status) -> int:
        row = self._db.execute(
            "INSERT INTO messages (session, role, content, status, created, tool_call_id) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (session, message.role, message.content, status, time.time(), message.tool_call_id),
        )
        return cast(int, row.lastrowid)

    def _change(self, statement: str, *values: object) -> None:
        """Run a statement that changes one session, whose id is the last of ``values``."""
        if self._db.execute(statement, values).rowcount == 0:
            raise SessionNotFound(f"there is no session {str(values[-1])[:40]!r}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        with self._db:
            yield

    def _wipe(self) -> None:
        """Remove dropped messages from the write-ahead log, too."""
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _place(stored: tuple[StoredMessage, ...], message: int) -> int:
    """The index of a message. Raises :class:`MessageNotFound`."""
    for at, each in enumerate(stored):
        if each.id == message:
            return at
    raise errors.MessageNotFound(f"the session has no message {message}")


def _question(stored: tuple[StoredMessage, ...], turn: TurnRequest) -> tuple[str, int]:
    """The text to be answered, and the number of messages before it."""
    at = len(stored) - 1 if turn.message is None else _place(stored, turn.message)
    if turn.content is not None:
        if turn.message is None:
            return turn.content, len(stored)
        if stored[at].role != "user":
            raise InvalidOptions(
                f"message {turn.message} is not the user's, and so cannot be edited",
                "Edit the user's message before it, or generate the answer anew.",
            )
        return turn.content, at
    while at >= 0 and stored[at].role != "user":
        at -= 1
    if at < 0:
        raise InvalidOptions("the session has no message to answer yet", "Send a message first.")
    return stored[at].content, at


def _check_results(stored: tuple[StoredMessage, ...], results: tuple[CallResult, ...]) -> None:
    """Raise :class:`InvalidOptions` if these are not the results of the last message's calls, in order."""
    called = [call.id for call in stored[-1].tool_calls] if stored else []
    if called != [result.tool_call_id for result in results]:
        expected = f"its calls are {', '.join(called)}" if called else "it has no calls"
        raise InvalidOptions(
            f"the results are not those of the last message: {expected[:200]}",
            "Send a result for each call of the last answer, in their order.",
        )


def _message(stored: StoredMessage) -> Message:
    return Message(stored.role, stored.content, stored.tool_calls, stored.tool_call_id)


def _select_answered(stored: Sequence[StoredMessage]) -> list[Message]:
    """The turns with an answer, which after results may be empty: chat templates require a question, calls
    with their results, and an answer. An answer whose calls were not made is one without them."""
    found: list[Message] = []
    turn: list[Message] = []
    roles = [each.role for each in stored[1:]]
    for each, next_role in zip_longest(map(_message, stored), roles):
        if each.role == "user":
            turn = []
        is_last = next_role != "tool"
        turn.append(replace(each, tool_calls=()) if is_last else each)
        if each.role == "assistant" and is_last:
            found += turn if each.content or len(turn) > 2 else []
            turn = []
    return found


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _title(content: str) -> str:
    line = next((line.strip() for line in content.splitlines() if line.strip()), "")
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1] + "…"


class ChatHistory:
    """The stores, used from a thread of their own, so that a slow disk does not block the event loop."""

    def __init__(self, path: Path) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="history")
        self._path = path
        # A file of its own: SQLite's locks would admit several daemons.
        self._lock = FileLock(f"{path}.lock", thread_local=False)
        self.problem: LocalspecError | None = None
        """the reason why the file cannot be used, so that chats are kept in memory only; else None"""

    async def open(self) -> None:
        """Open or create the file; a damaged one is set aside. Where there is no room for it, another program
        has locked it, or it has another format, it is left alone, and chats are kept in memory. Raises
        :class:`DaemonUnavailable` if another daemon has it open."""
        self._private = await self._do(lambda: ChatStore(":memory:"))
        try:
            await self._do(self._claim)
            self._stored = await self._do(lambda: _open_file(self._path))
        except DaemonUnavailable:
            raise
        except LocalspecError as error:
            again = f"{error.remedy} Then run `localspec daemon restart`."
            why = f"{error.message}: chats are kept in memory only. {again}"
            self.problem = type(error)("earlier chats cannot be read", why)
            log.warning("%s", why)
            self._stored = await self._do(lambda: ChatStore(":memory:"))

    def _claim(self) -> None:
        """Take the file's lock. Raises :class:`DaemonUnavailable` and :class:`DiskFull`."""
        try:
            self._lock.acquire(timeout=CLAIM_S)
        except Timeout:
            remedy = "Stop that daemon, or set LOCALSPEC_HOME to another directory for this one."
            raise DaemonUnavailable(f"another daemon uses the chat history {self._path}", remedy) from None
        except OSError as error:
            raise errors.of_system(error, "the chat history cannot be locked") or error from None

    async def close(self) -> None:
        await self._do(self._stored.close)
        await self._do(self._private.close)
        self._thread.shutdown()
        self._lock.release()

    async def new_session(self, options: Options, said: wire.SessionOpen) -> Session:
        id = (ONCE if said.once else "") + _new_id()
        session = Session(id=id, title="", options=options, system=said.system, private=said.private)
        await self.use(session, lambda store: store.add(session))
        return session

    async def session(self, id: str) -> Session:
        """The session of this id; raises :class:`SessionNotFound`, or :attr:`problem`."""
        found = await self._do(lambda: self._private.find(id, True) or self._stored.find(id, False))
        if found is None:
            raise (self.problem or SessionNotFound(f"there is no session {id[:40]!r}")).with_traceback(None)
        return found

    async def has_private(self) -> bool:
        """Return whether any session is kept in memory only, and so is lost when the daemon ends."""
        in_memory = (self._private,) if self.problem is None else (self._private, self._stored)
        any_one = wire.SessionQuery(limit=1)
        return await self._do(lambda: any(store.summaries(any_one) for store in in_memory))

    async def summaries(self, query: wire.SessionQuery) -> tuple[wire.SessionSummary, ...]:
        """The sessions of ``query`` that are not private, the last used first."""
        return await self._do(lambda: self._stored.summaries(query))

    async def fork(self, session: Session, message: int | None) -> Session:
        """Copy a session with its messages up to and including ``message`` (None: all); returns the copy."""
        copy = replace(session, id=_new_id())
        await self.use(session, lambda store: store.fork(session, copy, message))
        return copy

    async def use(self, session: Session, work: Callable[[ChatStore], T]) -> T:
        """Have the store of a session do some work; returns its result. Raises its error, and
        :class:`DiskFull` and :class:`LocalspecError` for a file that cannot be read or written."""
        store = self._private if session.private else self._stored
        return await self._do(lambda: work(store))

    async def _do(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            if _code(error) == sqlite3.SQLITE_FULL or (_code(error) in STUCK and self._has_no_room()):
                raise DiskFull(f"no space left for the chat history {self._path}") from error
            remedy = DAMAGE_REMEDY if _code(error) in DAMAGED else FAILURE_REMEDY
            raise LocalspecError(
                f"the chat history {self._path} cannot be read or written: {error}", remedy
            ) from error
        except OSError as error:
            raise errors.of_system(error, "the chat history cannot be read or written") or error from None

    def _has_no_room(self) -> bool:
        """Return True if a temporary file of :data:`ROOM` bytes cannot be written for lack of space: quotas
        and a lack of inodes are detected by writing only."""
        try:
            with tempfile.TemporaryFile(dir=self._path.parent, buffering=0) as file:
                return file.write(bytes(ROOM)) < ROOM
        except OSError as error:
            return error.errno in errors.FULL


def _new_id() -> str:
    return secrets.token_hex(8)


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary error code; 0 for an error of the Python module."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _open_file(path: Path) -> ChatStore:
    # Created first, because SQLite gives its companion files the mode of the database.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    try:
        return ChatStore(str(path))
    except sqlite3.DatabaseError as error:
        if _code(error) not in DAMAGED:
            raise
        aside = path.with_name(f"{path.name}.damaged-{time.time():.0f}")
        # With its write-ahead log: SQLite would apply that to a new file.
        for suffix in ("", "-wal", "-shm"):
            if (part := path.with_name(path.name + suffix)).exists():
                part.replace(aside.with_name(aside.name + suffix))
        log.error("%s is damaged (%s): set aside as %s; a new one is begun", path, error, aside)
        return _open_file(path)
