"""The files of one vocabulary's tables in their folder, made and removed so that a kill at any time is safe.

A table is ``<name>.ngm``, of one size from the beginning: when it is full, ageing makes room. A file gets its
name only when it is complete, and is never truncated. Names change under the lock of the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from localspec.errors import FULL, DiskFull, InvalidOptions, MemoryCorrupt, NewerFormat, StorageError
from localspec.home import plain, private_dir
from localspec.memory.sources import Sources, tag_of
from localspec.memory.table import NgramTable, TableHeader, choose_epoch
from localspec.wording import size

BITS = 20
"""log2 of the number of entries of a new table: 16 MiB, which hold 200,000 tokens whole"""
LOCK_S = 5.0
LONGEST_PATH = 4096
USER = "user"
"""the name of the user-wide table"""
FILE = re.compile(rf"\.?(?P<name>{USER}|w-[0-9a-f]{{24}})\..+")


def name_of(workspace: str | None) -> str:
    """The name of a workspace's table; None: the user-wide table. Raises :class:`InvalidOptions`."""
    if workspace is None:
        return USER
    return f"w-{hashlib.sha256(_real(workspace).encode()).hexdigest()[:24]}"


def _real(workspace: str) -> str:
    try:
        if 0 < len(workspace) <= LONGEST_PATH:
            return plain(os.path.realpath(workspace))
    except ValueError:  # NUL, or a surrogate that stands for no byte
        pass
    raise InvalidOptions(
        f"{workspace[:80]!r} cannot be a workspace: it is empty, too long or not a path",
        f"Name a directory in at most {LONGEST_PATH} characters.",
    )


class TableFiles:
    """The tables in ``folder``, all of the vocabulary ``vocab_fp``. ``notice`` is called with messages for
    the user. ``bits`` is log2 of a new table's number of entries."""

    def __init__(self, folder: Path, notice: Callable[[str], None], *, bits: int = BITS) -> None:
        self.folder, self.vocab_fp = folder, folder.name
        self._notice, self._bits = notice, bits

    def names(self) -> list[str]:
        """The names of all tables, also of those that left nothing but the list of their sources."""
        return sorted({name for name, _ in self._files()})

    def sources(self, name: str) -> Sources:
        return Sources(self.folder / f"{name}.sources")

    def open(self, name: str) -> NgramTable | None:
        """The table of this name; None if there is none, it was forgotten, or its file is not sound. Raises
        :class:`OSError` where it cannot be opened."""
        with contextlib.suppress(MemoryCorrupt, FileNotFoundError, NotADirectoryError):
            table = self._map(name)
            if not table.is_forgotten:
                return table
            table.close()
        return None

    def open_or_create(self, name: str, workspace: str | None) -> NgramTable:
        """As :meth:`open`, but create a missing table, empty, also in place of a file that is not a table.
        Raises :class:`StorageError`, of which :class:`DiskFull` and :class:`NewerFormat` are subclasses."""
        with self.lock():
            return self._settle(name) or self._create(name, workspace)

    def forget(self, name: str) -> None:
        """Make a table and all files beside it unreadable, then remove them."""
        with self.lock():
            with contextlib.suppress(MemoryCorrupt, OSError):
                table = self._map(name)
                table.forget_all()
                table.close()
            for owner, path in self._files():
                if owner == name:
                    path.unlink()

    def forget_source(self, name: str, source: str) -> int:
        """Overwrite what a table learnt from one source, then remove the name by which it is found; returns
        the number of entries. Texts that wait to be learnt into this table, in any process, are dropped."""
        with self.lock():
            sources, tag = self.sources(name), tag_of(source)
            # Entries of another source may have the same tag. Those without a name are of a killed process.
            is_anothers = source not in sources and any(tag_of(other) == tag for other in sources.names())
            table = self._settle(name)
            if table is None:
                return 0
            # First: a process that inserts and then finds the old epoch inserted before the erasure.
            table.renew()
            erased = 0 if is_anothers else table.forget(tag)
            table.close()
            if not is_anothers:
                sources.remove(source)
            return erased

    def note(self, name: str, source: str) -> None:
        with self.lock():
            self.sources(name).add(source)

    @contextlib.contextmanager
    def lock(self, timeout: float = LOCK_S) -> Iterator[None]:
        """Hold the lock under which processes change names in this folder, which is created unless its data
        directory was deleted. Raises :class:`LocalspecError`, of which :class:`StorageError` is a
        subclass."""
        private_dir(self.folder.parent, parents=False)
        private_dir(self.folder, parents=False)
        try:
            lock = FileLock(self.folder / "lock", mode=0o600)
            lock.acquire(timeout)
        except Timeout:
            raise StorageError(
                f"the n-gram memory in {self.folder} is locked by another process", "Try again in a moment."
            ) from None
        except OSError as error:
            raise StorageError(
                f"the n-gram memory in {self.folder} cannot be locked: {error.strerror}",
                "Check that this directory and the file `lock` in it are writable.",
            ) from None
        try:
            yield
        finally:
            lock.release()

    def _settle(self, name: str) -> NgramTable | None:
        """As :meth:`open`, with a notice of a file that is not sound; needs the lock. Raises
        :class:`NewerFormat`."""
        path = self._path(name)
        try:
            self._map(name).close()
        except FileNotFoundError:
            return None
        except NewerFormat as error:
            raise NewerFormat(f"{path} is not used as n-gram memory: {error.message}") from None
        except MemoryCorrupt as error:
            self._notice(f"{path} is not used as n-gram memory, and is removed: {error.message}.")
            path.unlink()
        return self.open(name)

    def _create(self, name: str, workspace: str | None) -> NgramTable:
        """Write a complete, empty file under its name, or none. Raises :class:`DiskFull`."""
        header = TableHeader(self._bits, "" if workspace is None else _real(workspace))
        path = self._path(name)
        scratch = path.with_suffix(".tmp")
        try:
            fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(fd, "wb") as file:
                # All room is taken now: a page without room on the disk would raise SIGBUS later.
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(fd, 0, header.file_bytes)
                else:
                    file.write(bytes(header.file_bytes))
                    file.seek(0)
                file.write(header.pack(choose_epoch()))
                file.flush()
                os.fsync(fd)
            os.replace(scratch, path)
        except OSError as error:
            scratch.unlink(missing_ok=True)
            if error.errno in FULL:
                room = size(header.file_bytes)
                raise DiskFull(f"there is no room for {room} of n-gram memory in {self.folder}") from None
            raise
        return self._map(name)

    def _map(self, name: str) -> NgramTable:
        return NgramTable.open(self._path(name))

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.ngm"

    def _files(self) -> list[tuple[str, Path]]:
        """The files of all tables, each with the name of its table."""
        try:
            matches = [(FILE.fullmatch(path.name), path) for path in self.folder.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [(match["name"], path) for match, path in matches if match]
