"""The files that people write, learnt while nobody asks: each line once, wherever it moves."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from localspec.backends.base import Vocabulary
from localspec.memory.apart import apart
from localspec.memory.lesson import Lesson
from localspec.memory.memory import Memory, Moment
from localspec.memory.texts import MAX_BYTES, may_learn
from localspec.memory.workspace import workspace_of
from localspec.protocol.requests import FimPrompt

CONTEXT = 2
"""lines before a new one that are learnt with it, known or not"""
PIECE = 64
"""lines that are looked at, or made tokens of, at once"""
SEEN = 200_000
"""lines that are remembered as learnt"""
WAITING = 256
"""files that may wait to be looked at; then those that have waited longest are given up"""


class Heard(NamedTuple):
    """The parts of a file, which do not touch, and when they came."""

    parts: tuple[str, ...]
    said: Moment


class Primer:
    """Teaches ``memory`` the lines of files, in small steps. The newest text of a file counts; what git
    ignores, and what holds secrets by its name, is never learnt."""

    def __init__(self, memory: Memory, vocabulary: Vocabulary) -> None:
        self._memory, self._vocabulary = memory, vocabulary
        self._waiting: dict[tuple[str, str | None, int], Heard] = {}
        self._steps: Iterator[None] = iter(())
        self._seen: dict[bytes, None] = {}

    def read(self, prompt: FimPrompt, workspace: str | None) -> None:
        """A gap's own file, but for the line that is being written, and the pieces of others are to be
        learnt, into the table of ``workspace``."""
        if prompt.path is not None:
            above = prompt.prefix[: prompt.prefix.rfind("\n") + 1]
            self._add(prompt.path, workspace, (above, prompt.suffix.partition("\n")[2]))
        for file in prompt.extra:
            self.teach(file.path, file.text, workspace)

    def teach(self, path: str, text: str, workspace: str | None) -> None:
        """A piece of a file is to be learnt."""
        self._add(path, workspace, (text,))

    def forget(self, source: str) -> None:
        """What waits of a source is not to be learnt; what comes of it is new."""
        self._waiting = {key: heard for key, heard in self._waiting.items() if f"file:{key[0]}" != source}
        self._seen.clear()

    def _add(self, path: str, workspace: str | None, parts: tuple[str, ...]) -> None:
        said = self._memory.moment(workspace)
        if said is None or sum(map(len, parts)) > MAX_BYTES:
            return
        # A piece does not take the place of its whole file.
        self._waiting[path, workspace, len(parts)] = Heard(parts, said)
        if len(self._waiting) > WAITING:
            del self._waiting[next(iter(self._waiting))]

    def work(self) -> bool:
        """Do a small step; returns whether there is more to do."""
        try:
            next(self._steps)
        except StopIteration:
            if not self._waiting:
                return False
            (path, workspace, count), heard = next(iter(self._waiting.items()))
            del self._waiting[path, workspace, count]
            self._steps = self._read_parts(path, workspace, heard)
        return True

    def _read_parts(self, path: str, workspace: str | None, heard: Heard) -> Iterator[None]:
        # Reading a repository's rules may wait for a disk, and they are anybody's.
        if not (yield from apart(lambda: _allowed(path, workspace))):
            return
        lesson = partial(Lesson, workspace=workspace, source=f"file:{path}")
        for part in heard.parts:
            yield from self._learn(part, heard.said, lesson)

    def _learn(self, text: str, said: Moment, lesson: Callable[[list[int]], Lesson]) -> Iterator[None]:
        lines, fresh = text.splitlines(keepends=True), list[int]()
        for i, line in enumerate(lines):
            if line.strip() and self._is_new(lines, i, said):
                fresh.append(i)
            if i % PIECE == PIECE - 1:
                yield
        for start, end in _runs(fresh):
            piece = "".join(lines[max(0, start - CONTEXT) : end])
            tokens = self._vocabulary.encode(piece, special=False)
            self._memory.learn(lesson(tokens), said)
            yield

    def _is_new(self, lines: Sequence[str], i: int, said: Moment) -> bool:
        """Whether this table did not see a line after the one before it; it counts as seen from now on."""
        line = f"{said.table}\0{said.epoch}\0{lines[i - 1] if i else ''}\0{lines[i]}"
        key = hashlib.blake2b(line.encode("utf-8", "replace"), digest_size=8).digest()
        if key in self._seen:
            return False
        self._seen[key] = None
        if len(self._seen) > SEEN:
            del self._seen[next(iter(self._seen))]
        return True


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(start, end) of lines that stand together, blank ones between them or not; at most a piece each."""
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


def _allowed(path: str, workspace: str | None) -> bool:
    """Whether a file may be learnt; where it stands must be known to say so."""
    where = os.path.join(workspace or "", path)
    try:
        return os.path.isabs(where) and may_learn(Path(where))
    except (OSError, ValueError, RuntimeError):
        return False  # no path of a file


def workspace_of_file(path: str | None) -> str | None:
    """The git root that holds a file; None outside of any, and for a path that leads nowhere."""
    try:
        found = workspace_of(Path(path).parent) if path and os.path.isabs(path) else None
    except (OSError, ValueError, RuntimeError):
        return None
    return None if found is None else str(found)
