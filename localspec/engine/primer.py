"""The lines of files that users write, learnt into the n-gram memory: each line once, wherever it moves."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from localspec.backends.base import ModelVocabulary
from localspec.memory.memory import Memory, QueueStamp
from localspec.memory.ngrams import MemoryText
from localspec.memory.sources import run_in_thread
from localspec.memory.text_files import MAX_BYTES, may_learn
from localspec.protocol.requests import FimPrompt

CONTEXT = 2
"""lines before a new one that are learnt with it, even if known"""
PIECE = 64
"""lines that are examined, or tokenized, in one step"""
SEEN = 200_000
"""number of learnt lines that are kept to recognise them"""
WAITING = 256
"""the most files in the queue; if there are more, the oldest are dropped"""


class Primer:
    """Adds the lines of files to ``memory``, if there is one, in small steps. Only the newest text of a file
    is learnt; files that git ignores, or whose names suggest secrets, never are."""

    def __init__(self, memory: Memory | None, vocabulary: ModelVocabulary) -> None:
        self._memory, self._vocabulary = memory, vocabulary
        self._waiting: dict[tuple[str, str | None, int], tuple[tuple[str, ...], QueueStamp]] = {}
        """files' parts, and the moments at which they were queued, by path, workspace and number of parts: a
        piece does not replace its whole file"""
        self._steps: Iterator[None] = iter(())
        self._seen: dict[bytes, None] = {}

    def read(self, prompt: FimPrompt, workspace: str | None) -> None:
        """Queue a gap's own file, except the line that is being written, and its pieces of other files."""
        if prompt.path is not None:
            above = prompt.prefix[: prompt.prefix.rfind("\n") + 1]
            self.teach(prompt.path, workspace, above, prompt.suffix.partition("\n")[2])
        for file in prompt.extra:
            self.teach(file.path, workspace, file.text)

    def forget(self, source: str) -> None:
        """Drop the queued texts of ``source``, and count all later lines as new."""
        self._waiting = {key: pending for key, pending in self._waiting.items() if f"file:{key[0]}" != source}
        self._seen.clear()

    def teach(self, path: str, workspace: str | None, *parts: str) -> None:
        """Queue a file's parts, which are not adjacent, to be learnt into the table of ``workspace``."""
        moment = None if self._memory is None else self._memory.stamp_text(workspace)
        if moment is None or sum(map(len, parts)) > MAX_BYTES:
            return
        self._waiting[path, workspace, len(parts)] = parts, moment
        if len(self._waiting) > WAITING:
            del self._waiting[next(iter(self._waiting))]

    def work(self) -> bool:
        """Do a small step; return False if there was nothing to do."""
        try:
            next(self._steps)
        except StopIteration:
            if not self._waiting:
                return False
            path, workspace, count = next(iter(self._waiting))
            parts, moment = self._waiting.pop((path, workspace, count))
            self._steps = self._read_parts(path, workspace, parts, moment)
        return True

    def _read_parts(
        self, path: str, workspace: str | None, parts: tuple[str, ...], moment: QueueStamp
    ) -> Iterator[None]:
        # In a thread, because git answers from untrusted files, and may wait for a disk.
        if not (yield from run_in_thread(lambda: _may_learn(path, workspace))):
            return
        lesson = partial(MemoryText, workspace=workspace, source=f"file:{path}")
        for part in parts:
            yield from self._learn(part, moment, lesson)

    def _learn(
        self, text: str, moment: QueueStamp, lesson: Callable[[list[int]], MemoryText]
    ) -> Iterator[None]:
        lines, fresh = text.splitlines(keepends=True), list[int]()
        for i, line in enumerate(lines):
            if line.strip() and self._is_new(lines, i, moment):
                fresh.append(i)
            if i % PIECE == PIECE - 1:
                yield
        for start, end in _runs(fresh):
            piece = "".join(lines[max(0, start - CONTEXT) : end])
            tokens = self._vocabulary.encode(piece, special=False)
            if self._memory is not None:
                self._memory.learn(lesson(tokens), moment)
            yield

    def _is_new(self, lines: Sequence[str], i: int, moment: QueueStamp) -> bool:
        """True if this table has not learnt line ``i`` after the one before; count it as learnt."""
        line = f"{moment.table}\0{moment.epoch}\0{lines[i - 1] if i else ''}\0{lines[i]}"
        key = hashlib.blake2b(line.encode("utf-8", "replace"), digest_size=8).digest()
        if key in self._seen:
            return False
        self._seen[key] = None
        if len(self._seen) > SEEN:
            del self._seen[next(iter(self._seen))]
        return True


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of runs of line ``numbers``, with at most one other line between two, and at most
    PIECE lines each."""
    start = last = -1
    for number in numbers:
        if start >= 0 and (number - last > CONTEXT or number - start >= PIECE):
            yield start, last + 1
            start = -1
        if start < 0:
            start = number
        last = number
    if start >= 0:
        yield start, last + 1


def _may_learn(path: str, workspace: str | None) -> bool:
    """Return True if a file may be learnt; False also if its absolute path is not known."""
    where = os.path.join(workspace or "", path)
    try:
        return os.path.isabs(where) and may_learn(Path(where))
    except (OSError, ValueError, RuntimeError):
        return False  # no path of a file
