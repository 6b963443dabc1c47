"""What tells clients where a daemon is, and whether its home is still there.

A home may be deleted under a daemon that runs, and another one be made in its place: then nobody finds this
daemon any more, and what lies in the new home belongs to its successor.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from pathlib import Path

import msgspec

from localspec import home
from localspec.daemon import files
from localspec.errors import LocalspecError, of_system
from localspec.protocol.messages import Discovery

log = logging.getLogger(__name__)

CHECK_S = 5.0
FEW_FILES = 64


class Announcement:
    """The discovery file at ``path`` and the socket that it names; ``directories`` are others of the home."""

    def __init__(self, found: Discovery, path: Path, directories: tuple[Path, ...]) -> None:
        self._found = found
        self._path = path
        self._socket = None if found.socket is None else Path(found.socket)
        # Held open, so that no other file gets their numbers.
        self._held = {each: _opened(each) for each in (path.parent, *directories)}
        self._socket_id = None if self._socket is None else _identity(self._socket)

    def make(self) -> None:
        """Tell clients where the daemon listens."""
        try:
            home.write_private(self._path, msgspec.json.encode(self._found).decode() + "\n")
        except OSError as error:
            told = f"{self._path} cannot be written, and without it nobody finds the daemon"
            raise (of_system(error, told) or error) from None

    def withdraw(self) -> None:
        """Take the announcement back, and the socket; what belongs to another daemon by now stays."""
        if self._lost() is None:
            if self._is_mine():
                self._path.unlink(missing_ok=True)
            if self._socket is not None:
                self._socket.unlink(missing_ok=True)
        for descriptor in self._held.values():
            if descriptor is not None:
                os.close(descriptor)
        self._held.clear()

    async def keep(self) -> None:
        """Make it again when it was deleted; returns when the home, or the socket, is no longer there."""
        while (lost := self._lost()) is None:
            if not self._path.exists():
                with contextlib.suppress(OSError, LocalspecError):
                    self.make()
                    log.warning("%s was deleted: it is written again", self._path)
            await asyncio.sleep(CHECK_S)
        log.error("%s was deleted or replaced: nobody finds this daemon any more, and it ends", lost)

    def _lost(self) -> Path | None:
        """What is not there any more, or was replaced."""
        for path, descriptor in self._held.items():
            if descriptor is not None and _is_other(path, _numbers(os.fstat(descriptor))):
                return path
        if self._socket is not None and _is_other(self._socket, self._socket_id):
            return self._socket
        return self._path if self._is_mine() is False else None

    def _is_mine(self) -> bool | None:
        """Whether the file tells of this daemon; None where it is not there or cannot be read now."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Discovery) == self._found
        except OSError:
            return None
        except msgspec.MsgspecError:
            return False


def _opened(directory: Path) -> int | None:
    """None where it cannot be held open, or too few files can; the socket tells enough then."""
    few = files.limit(FEW_FILES) < FEW_FILES
    return None if few or os.name != "posix" else os.open(directory, os.O_RDONLY)


def _is_other(path: Path, identity: tuple[int, int] | None) -> bool:
    """Whether a file was deleted or replaced; one that cannot be looked at, as with no descriptor or by an
    error of the disk, was not."""
    try:
        return _numbers(os.stat(path)) != identity
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        return _numbers(os.stat(path))
    except OSError:
        return None


def _numbers(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
