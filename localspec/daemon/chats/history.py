"""The chats: sessions and their messages, in SQLite; private ones in memory only."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sqlite3
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from filelock import FileLock, Timeout
from msgspec.structs import replace

from localspec.daemon.chats.store import Session, Store
from localspec.errors import FULL, DaemonUnavailable, DiskFull, LocalspecError, SessionNotFound, of_system
from localspec.protocol.messages import SessionQuery, SessionSummary
from localspec.protocol.options import Options

log = logging.getLogger(__name__)

T = TypeVar("T")

DAMAGED = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
STUCK = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
"""errors of a full disk where SQLite cannot write a file beside the database"""
ROOM = 1 << 16
"""bytes of the smallest such file, the index of the write-ahead log"""
FULL_REMEDY = "Free some disk space, then run `localspec daemon restart`."
DAMAGE_REMEDY = "Run `localspec daemon restart`: that sets the file aside and begins a new one."
FAILURE_REMEDY = "Check that the file and its directory are readable and writable, then try again."


class History:
    """The stores, used from a thread of their own, so that a slow disk does not block the event loop."""

    def __init__(self, path: Path) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="history")
        self._path = path
        # A file of its own: SQLite's locks would admit several daemons.
        self._lock = FileLock(f"{path}.lock")
        self.problem: str | None = None
        """message if the disk has no room for the file, so that chats are kept in memory only; else None"""

    async def open(self) -> None:
        """Open or create the file; a damaged one is set aside. On a full disk chats are kept in memory, and
        those of the file cannot be read, until the next daemon opens it.

        Raises :class:`DaemonUnavailable` if another process has it open.
        """
        self._private = await self._do(lambda: Store(":memory:"))
        try:
            self._claim()
            self._stored = await self._do(lambda: _open_file(self._path))
        except DiskFull as error:
            self.problem = f"{error.message}: chats are kept in memory only. {FULL_REMEDY}"
            log.warning("%s", self.problem)
            self._stored = await self._do(lambda: Store(":memory:"))

    def _claim(self) -> None:
        """Take the file's lock. Raises :class:`DaemonUnavailable` and :class:`DiskFull`."""
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            remedy = "Stop that daemon, or set LOCALSPEC_HOME to another directory for this one."
            raise DaemonUnavailable(f"another daemon uses the chat history {self._path}", remedy) from None
        except OSError as error:
            raise of_system(error, "the chat history cannot be locked") or error from None

    async def close(self) -> None:
        await self._do(self._stored.close)
        await self._do(self._private.close)
        self._thread.shutdown()
        self._lock.release()

    # Sessions.

    async def new_session(self, options: Options, system: str | None, private: bool) -> Session:
        session = Session(id=_new_id(), title="", options=options, system=system, private=private)
        await self.use(session, lambda store: store.add(session))
        return session

    async def session(self, id: str) -> Session:
        """The session of this id; raises :class:`SessionNotFound`."""
        found = await self._do(lambda: self._private.find(id, True) or self._stored.find(id, False))
        if found is None and self.problem is not None:
            raise DiskFull(f"earlier chats cannot be read: the disk of {self._path} is full", FULL_REMEDY)
        if found is None:
            raise SessionNotFound(f"there is no session {id[:40]!r}")
        return found

    async def has_private(self) -> bool:
        """Return whether any session is kept in memory only, and so is lost when the daemon ends."""
        in_memory = (self._private,) if self.problem is None else (self._private, self._stored)
        return not await self._do(lambda: all(store.is_empty() for store in in_memory))

    async def summaries(self, query: SessionQuery) -> tuple[SessionSummary, ...]:
        """The sessions of ``query`` that are not private, the last used first."""
        return await self._do(lambda: self._stored.summaries(query))

    async def fork(self, session: Session, message: int | None) -> Session:
        """Copy a session with its messages up to and including ``message`` (None: all); returns the copy."""
        copy = replace(session, id=_new_id())
        await self.use(session, lambda store: store.fork(session, copy, message))
        return copy

    async def use(self, session: Session, work: Callable[[Store], T]) -> T:
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
            raise of_system(error, "the chat history cannot be read or written") or error from None

    def _has_no_room(self) -> bool:
        """Return True if a temporary file of :data:`ROOM` bytes cannot be written for lack of space.

        Quotas and a lack of inodes are detected by writing only.
        """
        try:
            with tempfile.TemporaryFile(dir=self._path.parent, buffering=0) as file:
                return file.write(bytes(ROOM)) < ROOM
        except OSError as error:
            return error.errno in FULL


def _new_id() -> str:
    return secrets.token_hex(8)


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary error code; 0 for an error of the Python module."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _open_file(path: Path) -> Store:
    # Created first, because SQLite gives its companion files the mode of the database.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    try:
        return Store(str(path))
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
