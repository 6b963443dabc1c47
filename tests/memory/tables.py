"""Small tables, and texts to teach them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from localspec.memory.memory import Memory
from localspec.memory.ngrams import MemoryText, Words, hashes_in, hashes_of
from localspec.memory.table import NgramTable
from localspec.memory.table_files import TableFiles, name_of

FP = "0123456789abcdef"


def no_piece(token: int) -> bytes:
    return b"x"


def refuse(notice: str) -> None:
    raise AssertionError(f"an unexpected notice: {notice}")


def words(values: Sequence[int]) -> Words:
    return np.array(values, np.uint64)


def files_in(folder: Path, *, bits: int = 6) -> TableFiles:
    return TableFiles(folder / FP, refuse, bits=bits)


def table_in(folder: Path, workspace: str | None = None, *, bits: int = 6) -> NgramTable:
    return files_in(folder, bits=bits).open_or_create(name_of(workspace), workspace)


def teach(table: NgramTable, text: Sequence[int], tag: int = 1) -> None:
    for n, hashes in hashes_in(words(text)).items():
        table.insert(hashes[:-1], words(text[n:]), n, tag)


def remember(memory: Memory, text: Sequence[int], workspace: str | None = None, source: str = "run") -> None:
    memory.learn(MemoryText(text, workspace, source))
    while memory.work():
        pass


def memory_in(folder: Path, notice: Callable[[str], None] = refuse) -> Memory:
    return Memory(folder, FP, no_piece, notice=notice)


def recalled(memory: Memory, text: Sequence[int], workspace: str | None = None, at: int = 40) -> bool:
    tables = memory.tables(workspace)
    found = [table.find(hashes_of(text[:at])) for table in tables]
    return any(each is not None and each.token == text[at] for each in found)


def python(program: str, *arguments: object) -> str:
    """Run a program in a process of its own and return its output; it must succeed."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
