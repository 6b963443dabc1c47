"""The discovery file with the daemon's addresses for clients, and checks that the home still exists.

A home may be deleted while its daemon runs, and another one be created at the same path. Clients then no
longer find this daemon, and the files in the new home belong to its successor.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import time
from pathlib import Path

import msgspec
import psutil
from filelock import FileLock, Timeout

from localspec import home
from localspec.errors import DaemonUnavailable, LocalspecError, of_system
from localspec.protocol.messages import Discovery
from localspec.regular import read_regular

log = logging.getLogger(__name__)

CHECK_S = 5.0


class Announcement:
    """The discovery file at ``path`` and the socket that it names; ``directories`` are others of the home."""

    def __init__(self, found: Discovery, path: Path, directories: tuple[Path, ...]) -> None:
        self._found = found
        self._path = path
        self._socket = Path(found.socket)
        self._known: dict[Path, tuple[int, int]] = {
            each: _numbers(os.stat(each)) for each in (path.parent, *directories, self._socket)
        }

    def make(self) -> None:
        """Write the discovery file."""
        try:
            home.write_private(self._path, msgspec.json.encode(self._found).decode() + "\n")
        except OSError as error:
            what = f"clients cannot find the daemon, as {self._path} cannot be written"
            raise (of_system(error, what) or error) from None

    def withdraw(self) -> None:
        """Delete the discovery file and the socket, unless they belong to another daemon by now."""
        if self._lost() is None:
            if self._is_mine():
                self._path.unlink(missing_ok=True)
            self._socket.unlink(missing_ok=True)

    async def keep(self) -> None:
        """Write the discovery file again when it was deleted; return once :meth:`_lost` finds a path lost."""
        while (lost := self._lost()) is None:
            if not self._path.exists():
                with contextlib.suppress(OSError, LocalspecError):
                    self.make()
                    log.warning("%s was deleted: it is written again", self._path)
            await asyncio.sleep(CHECK_S)
        log.error("%s was deleted or replaced: clients cannot find this daemon any more, so it ends", lost)

    def _lost(self) -> Path | None:
        """Return the first path that was deleted or replaced, of the home's directories and the socket.

        The discovery file counts only where it names another daemon or is malformed. None if nothing is lost.
        """
        for path, identity in self._known.items():
            try:
                is_other = _numbers(os.stat(path)) != identity
            except OSError as error:  # another one is no loss: too few descriptors, or a failing disk
                is_other = isinstance(error, (FileNotFoundError, NotADirectoryError))
            if is_other:
                return path
        return self._path if self._is_mine() is False else None

    def _is_mine(self) -> bool | None:
        """Return True if the discovery file is this daemon's; None if it is missing or cannot be read."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Discovery) == self._found
        except OSError:
            return None
        except msgspec.MsgspecError:
            return False


def _numbers(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


PATIENCE_S = 5.0
"""seconds to wait for the lock of a daemon that is starting or stopping"""
STEP_S = 0.1
LARGEST = 1 << 20
"""bytes of an announcement"""


def claim() -> FileLock | None:
    """Take the lock of the one daemon; returns None if another one is listening already.

    Waits for a daemon that is starting or stopping, and raises :class:`DaemonUnavailable` if that takes too
    long. A discovery file left behind by a killed daemon is removed.
    """
    lock = FileLock(home.runtime_dir() / "daemon.lock")
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            lock.acquire(timeout=STEP_S)
        except Timeout:
            if _announced():
                return None
        else:
            home.discovery_path().unlink(missing_ok=True)
            return lock
    raise DaemonUnavailable(
        f"another daemon holds the lock {lock.lock_file}, but has not listened for {PATIENCE_S:.0f} s",
        f"Find it with `fuser {shlex.quote(lock.lock_file)}`, then end it.",
    )


def _announced() -> bool:
    """Return True if the daemon that holds the lock listens: the announcement is of a living process."""
    try:
        found = msgspec.json.decode(read_regular(home.discovery_path(), LARGEST) or b"", type=Discovery)
    except (OSError, msgspec.MsgspecError):
        return False
    return psutil.pid_exists(found.pid)
