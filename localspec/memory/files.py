"""The files of one vocabulary's tables: found, made, grown and removed, safe against kills at any time.

A table is ``<name>.<generation>.ngm``; the highest generation counts. A file gets its name only when it
is complete, and is never truncated. Names change under the lock of the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from localspec.errors import FULL, DiskFull, InvalidOptions, MemoryCorrupt, NewerFormat, StorageError
from localspec.home import private_dir
from localspec.memory.sources import Forgotten, Sources, tag_of
from localspec.memory.table import ENTRY_BYTES, HEADER_BYTES, Header, NgramTable, State
from localspec.memory.workspace import plain
from localspec.units import size

START_BITS = 14
"""2**14 entries: 256 KiB"""
MAX_BITS = 20
"""2**20 entries: 16 MiB; beyond that ageing makes room"""
GROWTH_BITS = 2
"""a table grows fourfold: three times in its life"""
LOCK_S = 5.0
LONGEST_PATH = 4096
USER = "user"
"""the name of the user-wide table"""
FILE = re.compile(r"(?P<name>[a-z0-9-]+)\.(?P<generation>\d{1,10})\.(?P<kind>ngm|tmp)")
ASIDE = re.compile(r"(?P<name>[a-z0-9-]+)\.\d{1,10}\.ngm\.quarantine-\d+")
SOURCES = re.compile(r"\.?(?P<name>[a-z0-9-]+)\.sources(\.\w+)?")


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
    """The tables in ``folder``, all of the vocabulary ``vocab_fp``.

    ``notice`` is called with messages for the user. ``start_bits`` and ``max_bits`` are log2 of a table's
    first and last number of entries.
    """

    def __init__(
        self,
        folder: Path,
        notice: Callable[[str], None],
        *,
        start_bits: int = START_BITS,
        max_bits: int = MAX_BITS,
    ) -> None:
        self.folder, self.vocab_fp = folder, folder.name
        self.forgotten = Forgotten(folder / "forgotten")
        self._notice = notice
        self._start_bits, self._max_bits = start_bits, max_bits

    def names(self) -> list[str]:
        """The names of all tables, also of those that were set aside, or left nothing but the list of their
        sources."""
        names = [path.name for path in self._paths()]
        matches = (pattern.fullmatch(name) for pattern in (FILE, ASIDE, SOURCES) for name in names)
        return sorted({match["name"] for match in matches if match})

    def set_aside(self, name: str) -> list[Path]:
        """The quarantined files of this name."""
        matches = (ASIDE.fullmatch(path.name) for path in self._paths())
        return sorted(self.folder / match[0] for match in matches if match and match["name"] == name)

    def sources(self, name: str) -> Sources:
        return Sources(self.folder / f"{name}.sources")

    def open(self, name: str) -> NgramTable | None:
        """The table of this name: of its newest file that is sound and not superseded; None if there is none.

        Raises :class:`OSError` for errors that are not the file's.
        """
        for path in self._files(name):
            with contextlib.suppress(MemoryCorrupt, FileNotFoundError):
                table = self._map(path, name)
                if not table.is_superseded:
                    return table
                table.close()
        return None

    def open_or_create(self, name: str, workspace: str | None) -> NgramTable:
        """As :meth:`open`, but create a missing table, empty. A file that is not a table is set aside, and
        leftovers of killed processes are removed.

        Raises :class:`StorageError`, of which :class:`DiskFull` and :class:`NewerFormat` are subclasses.
        """
        with self.lock():
            return self._settle(name) or self._create(name, workspace)

    def may_grow(self, table: NgramTable) -> bool:
        return table.header.bits < self._max_bits

    def grow(self, table: NgramTable) -> NgramTable:
        """Replace a table by one of fourfold size; returns the new one.

        Returns ``table`` itself while another process has the lock. Entries that other processes insert
        meanwhile are lost. Raises :class:`DiskFull`.
        """
        header = table.header
        try:
            with self.lock(timeout=0):
                if table.is_superseded:
                    return self._settle(header.name) or table
                bits = min(header.bits + GROWTH_BITS, self._max_bits)
                larger = header._replace(bits=bits, generation=header.generation + 1)
                self._write(larger, table.state, table.spread(bits).tobytes())
                grown = self._map(self._path(larger), header.name)
                table.supersede()
                _unlink(table.path)
                return grown
        except Timeout:
            return table

    def forget(self, name: str) -> None:
        """Make a table and all files beside it unreadable, then remove them."""
        with self.lock():
            # The newest last: if it were removed first and this process killed, an older one would come back.
            for path in reversed(self._files(name)):
                with contextlib.suppress(MemoryCorrupt, OSError):
                    table = self._map(path, name)
                    # Superseded first: a process that opens it after a kill removes it.
                    table.supersede()
                    table.forget_all()
                    table.close()
                _unlink(path)
            self._clear_scratch(name)
            for path in (*self.set_aside(name), self.folder / f"{name}.sources"):
                _unlink(path)

    def forget_source(self, name: str, source: str) -> int:
        """Overwrite what a table learnt from one source; returns the number of entries.

        Texts of it that wait to be learnt, in any process, are dropped.
        """
        with self.lock():
            # Stamped first: a process that inserts and then sees no stamp inserted before the erasure.
            self.forgotten.add(tag_of(source))
            return self._erase(name, source)

    def erase(self, name: str, source: str) -> int:
        """As :meth:`forget_source`, for a source that was forgotten before; later texts may be learnt."""
        with self.lock():
            return self._erase(name, source)

    def note(self, name: str, source: str, *, since: float) -> None:
        """Store the name of a source, unless it was forgotten after ``since``."""
        with self.lock():
            if not self.forgotten.is_since(tag_of(source), since):
                self.sources(name).add(source)

    def _erase(self, name: str, source: str) -> int:
        """Erase the entries, then the name by which they are found; needs the lock, as growth copies both."""
        sources, tag = self.sources(name), tag_of(source)
        # Entries of another source may have the same tag. Those without a name are of a killed process.
        is_anothers = source not in sources and any(tag_of(other) == tag for other in sources.names())
        table = None if is_anothers else self._settle(name)
        if table is None:
            return 0
        forgotten = table.forget(tag)
        table.close()
        sources.remove(source)
        return forgotten

    @contextlib.contextmanager
    def lock(self, timeout: float = LOCK_S) -> Iterator[None]:
        """Hold the lock under which processes change names in this folder, which is created unless its data
        directory was deleted.

        Raises :class:`StorageError`, or :class:`Timeout` at once if ``timeout`` is 0.
        """
        data = self.folder.parent.parent
        if not data.is_dir():
            raise StorageError(
                f"the data directory {data} was deleted: its n-gram memory cannot be changed",
                "If it was moved, set LOCALSPEC_HOME accordingly and run `localspec daemon restart`.",
            )
        private_dir(self.folder.parent, parents=False)
        private_dir(self.folder, parents=False)
        try:
            lock = FileLock(self.folder / "lock", mode=0o600)
            lock.acquire(timeout)
        except Timeout:
            if not timeout:
                raise
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
        """Keep the newest sound file of this name and remove the others; needs the lock.

        Raises :class:`NewerFormat` if the newest file is of a later version.
        """
        self._clear_scratch(name)
        newest: NgramTable | None = None
        for path in self._files(name):
            try:
                table = self._map(path, name)
            except NewerFormat as error:
                if newest is None:
                    raise NewerFormat(f"{path} is not used as n-gram memory: {error.message}") from None
                continue
            except MemoryCorrupt as error:
                self._quarantine(path, error)
                continue
            if newest is None and not table.is_superseded:
                newest = table
                continue
            # A process may still have it open: the one that replaced it was killed before marking it.
            table.supersede()
            table.close()
            _unlink(path)
        return newest

    def _clear_scratch(self, name: str) -> None:
        """Remove the unfinished files of killed processes."""
        for pattern in (f"{name}.*.tmp", f".{name}.sources.*", ".forgotten.*"):
            for path in self.folder.glob(pattern):
                _unlink(path)

    def _create(self, name: str, workspace: str | None) -> NgramTable:
        generation = 1 + max(map(_generation, self._files(name)), default=0)
        real = "" if workspace is None else _real(workspace)
        header = Header(self._start_bits, generation, name, self.vocab_fp, real)
        state = State(epoch=secrets.randbits(64))
        self._write(header, state, bytes(ENTRY_BYTES << header.bits))
        return self._map(self._path(header), name)

    def _write(self, header: Header, state: State, entries: bytes) -> None:
        """Write a complete file under its name, or none. Raises :class:`DiskFull`."""
        path = self._path(header)
        scratch = path.with_suffix(".tmp")
        try:
            fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o600)
            with os.fdopen(fd, "wb") as file:
                # Zeros are written too: a page without room on the disk would raise SIGBUS later.
                file.write(header.pack(state) + entries)
                file.flush()
                os.fsync(fd)
            os.replace(scratch, path)
        except OSError as error:
            _unlink(scratch)
            if error.errno in FULL:
                room = size(HEADER_BYTES + len(entries))
                raise DiskFull(f"there is no room for {room} of n-gram memory in {self.folder}") from None
            raise

    def _quarantine(self, path: Path, error: MemoryCorrupt) -> None:
        n = 1
        while os.path.lexists(aside := path.with_name(f"{path.name}.quarantine-{n}")):
            n += 1
        try:
            path.rename(aside)
            fate = f"It is kept as {aside.name}"
        except OSError as obstacle:
            fate = f"It cannot be set aside: {obstacle.strerror}"
        self._notice(f"{path} is not used as n-gram memory: {error.message}. {fate}.")

    def _map(self, path: Path, name: str) -> NgramTable:
        return NgramTable.open(path, name=name, vocab_fp=self.vocab_fp)

    def _path(self, header: Header) -> Path:
        return self.folder / f"{header.name}.{header.generation}.ngm"

    def _files(self, name: str) -> list[Path]:
        """All files of a table, the newest generation first."""
        matches = (FILE.fullmatch(path.name) for path in self._paths())
        mine = [self.folder / match[0] for match in matches if match and match["name"] == name]
        return sorted(mine, key=_generation, reverse=True)

    def _paths(self) -> list[Path]:
        try:
            return list(self.folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []


def _generation(path: Path) -> int:
    match = re.search(r"\.(\d{1,10})\.", path.name)
    return int(match[1]) if match else 0


def _unlink(path: Path) -> None:
    # Windows keeps a file that a process has mapped; the next call of `_settle` tries again.
    with contextlib.suppress(OSError):
        path.unlink()
