"""The n-gram memory as an engine uses it: recall now, learn later, in small steps.

The statistics of its files, and forgetting, work also while engines have them open.
"""

from __future__ import annotations

import logging
import struct
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from localspec.errors import LocalspecError
from localspec.memory.ngrams import ORDERS, MemoryText, NgramBatch, hashes_of, roll_hash, steps
from localspec.memory.sources import run_in_thread, tag_of
from localspec.memory.table import NgramTable
from localspec.memory.table_files import USER, TableFiles, name_of
from localspec.protocol.messages import TableStats

Notice = Callable[[str], None]


def vocabularies(directory: Path, notice: Notice) -> Iterator[TableFiles]:
    if directory.is_dir():
        for folder in sorted(directory.iterdir()):
            if folder.is_dir() and not folder.is_symlink():
                yield TableFiles(folder, notice)


def stats(directory: Path, notice: Notice) -> list[TableStats]:
    """All tables that can be used, the user-wide one of each vocabulary first."""
    tables = (
        _table_stats(files, name, notice)
        for files in vocabularies(directory, notice)
        for name in sorted(files.names(), key=lambda name: (name != USER, name))
    )
    return [table for table in tables if table is not None]


def forget(
    directory: Path, notice: Notice, *, workspace: str | None = None, source: str | None = None
) -> int:
    """Forget a workspace, a source, a source in a workspace, or, without either, everything. ``workspace`` is
    the path of a workspace. Returns the number of tables (or, for a source, of entries) that were forgotten.
    Raises :class:`StorageError`, or :class:`InvalidOptions` for an invalid path."""
    selected = _select_tables(directory, notice, workspace)
    if source is not None:
        return sum(files.forget_source(name, source) for files, name in selected)
    for files, name in selected:
        files.forget(name)
    return len(selected)


def count(directory: Path, notice: Notice, *, workspace: str | None = None) -> int:
    return len(_select_tables(directory, notice, workspace))


def _select_tables(directory: Path, notice: Notice, workspace: str | None) -> list[tuple[TableFiles, str]]:
    """The tables of a workspace in all vocabularies; None: all tables."""
    wanted = None if workspace is None else name_of(workspace)
    named = ((files, name) for files in vocabularies(directory, notice) for name in files.names())
    return [(files, name) for files, name in named if wanted in (None, name)]


def _table_stats(files: TableFiles, name: str, notice: Notice) -> TableStats | None:
    """The statistics of a table; None if it cannot be used."""
    try:
        table = files.open(name)
        changed = None if table is None else table.path.stat().st_mtime
    except OSError as error:
        notice(f"the table {name} cannot be opened: {error.strerror}")
        return None
    if table is None:
        return None
    tags_of_entries, header = table.tags(), table.header
    table.close()
    names = {tag_of(source): source for source in files.sources(name).names()}
    tags, counts = np.unique(tags_of_entries, return_counts=True)
    by_source = {names.get(int(t), f"#{int(t)}"): int(n) for t, n in zip(tags, counts, strict=True)}
    return TableStats(
        workspace=header.workspace or None,
        vocab_fp=files.vocab_fp,
        path=str(table.path),
        bytes=header.file_bytes,
        capacity=1 << header.bits,
        entries=len(tags_of_entries),
        occupancy=len(tags_of_entries) / (1 << header.bits),
        last_use=changed,
        sources=dict(sorted(by_source.items(), key=lambda item: -item[1])),
    )


STEP_S = 0.0005
"""seconds after which a call of :meth:`Memory.work` begins no further step; a step takes about as long"""

WAITING = 1 << 18
"""most tokens that wait to be learnt"""
LESSON = 16
"""tokens added to the length of each waiting text"""
CLOSE_S = 2.0
"""longest time to learn the waiting texts when an engine ends"""
FAULTS = (LocalspecError, OSError, ValueError, struct.error)
"""the errors that a file's content can cause"""

log = logging.getLogger(__name__)
T = TypeVar("T")


class QueueStamp(NamedTuple):
    """The time of a text, for comparison with forgetting: its table, the table's epoch if there was a table,
    and seconds since 1970, for texts that were forgotten by this process."""

    table: str
    epoch: int | None
    since: float


class Memory:
    """The tables of one vocabulary. Used from one thread; other processes may have the same tables open.
    ``directory`` holds a folder per vocabulary; files are opened at their first use and created when there is
    something to learn. ``piece`` returns a token's bytes. ``notice`` is called once with each message for the
    user: a damaged file, a full disk. No method raises because of a file."""

    orders: Sequence[int] = ORDERS
    hashes_of = staticmethod(hashes_of)
    roll_hash = staticmethod(roll_hash)

    def __init__(
        self,
        directory: Path,
        vocab_fp: str,
        piece: Callable[[int], bytes],
        *,
        notice: Callable[[str], None] = log.warning,
    ) -> None:
        self.failure: LocalspecError | None = None
        """the last LocalspecError that a file caused; None if there was none"""
        self.withheld = 0
        """tokens that were not learnt because they look like secrets"""
        self._piece, self._report = piece, notice
        self._reported: set[str] = set()
        self._files = TableFiles(directory / vocab_fp, self._notice)
        self._tables: dict[str, NgramTable] = {}
        self._lessons: deque[tuple[MemoryText, QueueStamp]] = deque()
        self._waiting = 0
        self._steps: Iterator[None] = iter(())
        self._forgotten: dict[str, float] = {}
        """the time at which each source was forgotten by this process, in seconds since 1970"""

    def tables(self, workspace: str | None) -> tuple[NgramTable, ...]:
        """The workspace's own table, then the user-wide one, as far as they exist and can be opened. A table
        that another process has forgotten is opened anew: call this for each request."""
        places = (workspace, None) if workspace is not None else (None,)
        names = [self._try(partial(name_of, place)) for place in places]
        tables = [None if name is None else self._try(partial(self._open_table, name)) for name in names]
        return tuple(table for table in tables if table is not None)

    def stamp_text(self, workspace: str | None) -> QueueStamp | None:
        """The current moment, for a text that is learnt later; None for a workspace without a table name."""
        name = self._try(partial(name_of, workspace))
        if name is None:
            return None
        table = self._try(partial(self._open_table, name))
        return QueueStamp(name, None if table is None else table.epoch, time.time())

    def learn(self, lesson: MemoryText, moment: QueueStamp | None = None) -> None:
        """Queue a text; :meth:`work` inserts it unless its source or table was forgotten after ``moment``, by
        default now. Beyond :data:`WAITING` tokens the texts that have waited longest are dropped."""
        moment = moment or self.stamp_text(lesson.workspace)
        if moment is None:
            return
        self._lessons.append((lesson, moment))
        self._waiting += LESSON + len(lesson.tokens)
        while len(self._lessons) > 1 and self._waiting > WAITING:
            self._drop_text("too many were waiting")

    def forget(self, source: str) -> None:
        """Drop the waiting texts of a source. Its entries are left to
        :func:`localspec.memory.memory.forget`."""
        self._forgotten[source] = time.time()

    def work(self, for_s: float = STEP_S) -> bool:
        """Insert, by default for about a millisecond at most; returns True if anything is left to do."""
        until = time.perf_counter() + for_s
        while self._step():
            if time.perf_counter() >= until:
                return True
        return False

    def close(self) -> None:
        """Insert the queued texts for at most :data:`CLOSE_S`, and report those dropped; flush, unmap. Tables
        handed out before cannot be used any more."""
        self.work(CLOSE_S)
        while self._lessons:
            self._drop_text("the engine ended first")
        for table in self._tables.values():
            self._try(table.flush)
            table.close()
        self._tables.clear()

    def _next(self) -> tuple[MemoryText, QueueStamp]:
        lesson, moment = self._lessons.popleft()
        self._waiting -= LESSON + len(lesson.tokens)
        return lesson, moment

    def _drop_text(self, reason: str) -> None:
        self._next()
        self._notice(f"some texts were not learnt: {reason}")

    def _step(self) -> bool:
        try:
            next(self._steps)
        except StopIteration:
            if not self._lessons:
                return False
            self._steps = self._teach(*self._next())
        except FAULTS as error:
            self._complain(error)
        except Exception:
            # A text that is not learnt costs a draft; an engine that ends costs every request its answer.
            log.exception("a text could not be learnt")
        return True

    def _teach(self, lesson: MemoryText, moment: QueueStamp) -> Iterator[None]:
        """Insert a text, unless it was forgotten meanwhile: its table, or its source."""
        tag, epoch, table = tag_of(lesson.source), moment.epoch, None
        for grams in steps(lesson.tokens, self._piece, self._withhold, lesson.earlier):
            if grams and table is None:
                table = yield from self._prepare_table(lesson, moment)
                if table is None:
                    return
                epoch = table.epoch
            if self._is_forgotten(lesson, moment) or (table is not None and table.epoch != epoch):
                return
            if grams and table is not None:
                self._insert(table, grams, tag)
                if table.epoch != epoch:
                    # Something was forgotten between the two checks: these entries came after the erasure.
                    yield from run_in_thread(partial(self._files.forget_source, moment.table, lesson.source))
                    return
            yield

    def _prepare_table(
        self, lesson: MemoryText, moment: QueueStamp
    ) -> Generator[None, None, NgramTable | None]:
        """The table that learns a text, with the name of its source noted; None if it was forgotten. Raises
        :data:`FAULTS` if the table cannot be opened."""
        table = self._open_table(moment.table)
        if moment.epoch is None and table is None:
            if self._is_forgotten(lesson, moment):
                return None
            make = partial(self._files.open_or_create, moment.table, lesson.workspace)
            table = self._tables[moment.table] = yield from run_in_thread(make)
        if table is None or moment.epoch not in (None, table.epoch):
            return None
        yield from run_in_thread(partial(self._files.note, moment.table, lesson.source))
        return table

    def _withhold(self, tokens: int) -> None:
        self.withheld += tokens

    def _is_forgotten(self, lesson: MemoryText, moment: QueueStamp) -> bool:
        return self._forgotten.get(lesson.source, 0.0) >= moment.since

    def _insert(self, table: NgramTable, grams: list[NgramBatch], tag: int) -> None:
        for order, hashes, tokens in grams:
            table.insert(hashes, tokens, order, tag)
        table.count(sum(len(each.tokens) for each in grams))

    def _open_table(self, name: str) -> NgramTable | None:
        """The table of a name; None if there is none. Raises :data:`FAULTS`."""
        # An old one may still be in use: it is unmapped with its last reference.
        table = self._tables.pop(name, None)
        if table is None or table.is_forgotten:
            table = self._files.open(name)
        if table is not None:
            self._tables[name] = table
        return table

    def _try(self, act: Callable[[], T]) -> T | None:
        """The result of ``act``; None after one of the :data:`FAULTS`, which is reported."""
        try:
            return act()
        except FAULTS as error:
            self._complain(error)
            return None

    def _complain(self, error: Exception) -> None:
        if isinstance(error, LocalspecError):
            self.failure = error
            self._notice(f"{error.message}. {error.remedy}")
        else:
            self._notice(f"the n-gram memory failed: {error}")

    def _notice(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            self._report(text)
