"""The chats: sessions and their messages, in SQLite; private ones in memory only."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, TypeVar, cast

import msgspec

from localspec.errors import DiskFull, LocalspecError, SessionNotFound
from localspec.protocol.messages import SessionSummary
from localspec.protocol.options import Options
from localspec.protocol.requests import Message

log = logging.getLogger(__name__)

T = TypeVar("T")
Status = Literal["streaming", "complete", "cancelled", "failed"]

TITLE_CHARS = 60
SETTINGS = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON"
MIGRATIONS = (
    """
    CREATE TABLE sessions (
        id TEXT PRIMARY KEY, title TEXT NOT NULL, created REAL NOT NULL, updated REAL NOT NULL,
        options TEXT NOT NULL, system TEXT
    );
    CREATE TABLE messages (
        id INTEGER PRIMARY KEY, session TEXT NOT NULL REFERENCES sessions ON DELETE CASCADE,
        role TEXT NOT NULL, content TEXT NOT NULL, status TEXT NOT NULL, created REAL NOT NULL
    );
    CREATE INDEX messages_by_session ON messages (session, id);
    """,
)
"""``user_version`` counts how many of these a file has seen."""


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A chat's head: what every turn of it shares."""

    id: str
    title: str
    options: Options
    system: str | None
    private: bool


class Store:
    """One SQLite database; used from one thread."""

    def __init__(self, path: str) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        try:
            self._db.executescript(SETTINGS)
            self._migrate()
            # Whatever was still streaming ended with the daemon that streamed it.
            self._db.execute("UPDATE messages SET status = 'failed' WHERE status = 'streaming'")
        except BaseException:
            self._db.close()
            raise

    def _migrate(self) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise LocalspecError(
                "the history was written by a newer localspec", "Install that version again."
            )
        for number, script in enumerate(MIGRATIONS[version:], version + 1):
            self._db.executescript(f"BEGIN; {script} PRAGMA user_version = {number}; COMMIT;")

    def close(self) -> None:
        self._db.close()

    def add(self, session: Session) -> None:
        now, options = time.time(), msgspec.json.encode(session.options).decode()
        row = (session.id, session.title, now, now, options, session.system)
        self._db.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?)", row)

    def find(self, id: str, private: bool) -> Session | None:
        row = self._db.execute("SELECT title, options, system FROM sessions WHERE id = ?", (id,)).fetchone()
        if row is None:
            return None
        options = msgspec.json.decode(row[1], type=Options)
        return Session(id=id, title=row[0], options=options, system=row[2], private=private)

    def summaries(self) -> tuple[SessionSummary, ...]:
        rows = self._db.execute(
            "SELECT s.id, s.title, s.created, s.updated, count(m.id) FROM sessions s "
            "LEFT JOIN messages m ON m.session = s.id AND m.content != '' "
            "GROUP BY s.id ORDER BY s.updated DESC, s.rowid DESC"
        )
        return tuple(SessionSummary(*row) for row in rows)

    def messages(self, session: str) -> tuple[Message, ...]:
        rows = self._db.execute(
            "SELECT role, content FROM messages WHERE session = ? AND content != '' ORDER BY id", (session,)
        )
        return tuple(Message(role, content) for role, content in rows)

    def begin_turn(self, session: Session, content: str) -> int:
        """Store the user's message and an empty answer; returns the answer's row."""
        now = time.time()
        title = session.title or _title(content)
        insert = "INSERT INTO messages (session, role, content, status, created) VALUES (?, ?, ?, ?, ?)"
        self._db.execute("BEGIN")
        with self._db:
            self._db.execute(
                "UPDATE sessions SET title = ?, updated = ? WHERE id = ?", (title, now, session.id)
            )
            self._db.execute(insert, (session.id, "user", content, "complete", now))
            answer = self._db.execute(insert, (session.id, "assistant", "", "streaming", now))
        return cast(int, answer.lastrowid)

    def write_answer(self, answer: int, text: str, status: Status) -> None:
        self._db.execute("UPDATE messages SET content = ?, status = ? WHERE id = ?", (text, status, answer))


class History:
    """The stores behind one thread of their own, so that no disk holds up the event loop."""

    def __init__(self, path: Path) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="history")
        self._path = path

    async def open(self) -> None:
        """Open or create the file; one that is no database is set aside."""
        self._stored, self._private = await self._do(lambda: (_open_file(self._path), Store(":memory:")))

    async def close(self) -> None:
        await self._do(self._stored.close)
        await self._do(self._private.close)
        self._thread.shutdown()

    async def new_session(self, options: Options, system: str | None, private: bool) -> Session:
        session = Session(id=secrets.token_hex(8), title="", options=options, system=system, private=private)
        await self._do(lambda: self._store(session).add(session))
        return session

    async def session(self, id: str) -> Session:
        """The session of this id; raises :class:`SessionNotFound`."""
        found = await self._do(lambda: self._private.find(id, True) or self._stored.find(id, False))
        if found is None:
            raise SessionNotFound(f"there is no session {id[:40]!r}")
        return found

    async def summaries(self) -> tuple[SessionSummary, ...]:
        """Every session but the private ones, the last used first."""
        return await self._do(lambda: self._stored.summaries())

    async def messages(self, session: Session) -> tuple[Message, ...]:
        """What was said so far; an answer that ended before its first word is left out."""
        return await self._do(lambda: self._store(session).messages(session.id))

    async def begin_turn(self, session: Session, content: str) -> int:
        """Commit the user's message; returns what :meth:`write_answer` calls the answer to come."""
        return await self._do(lambda: self._store(session).begin_turn(session, content))

    async def write_answer(self, session: Session, answer: int, text: str, status: Status) -> None:
        await self._do(lambda: self._store(session).write_answer(answer, text, status))

    def _store(self, session: Session) -> Store:
        return self._private if session.private else self._stored

    async def _do(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                raise DiskFull(f"no space left for the history in {self._path}") from error
            raise LocalspecError(f"the history in {self._path} failed: {error}") from error


def _open_file(path: Path) -> Store:
    # Created first, because SQLite gives its companion files the mode of the database.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    try:
        return Store(str(path))
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode not in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            raise
        aside = path.with_name(f"{path.name}.damaged-{time.time():.0f}")
        path.replace(aside)
        log.error("%s is damaged (%s): set aside as %s", path, error, aside.name)
        return _open_file(path)


def _title(content: str) -> str:
    line = next((line.strip() for line in content.splitlines() if line.strip()), "")
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1] + "…"
