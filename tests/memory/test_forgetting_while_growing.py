"""A source is forgotten for good at whatever step of a table's growth that happens."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.memory.memory import Memory, forget, stats
from localspec.memory.sources import tag_of
from localspec.memory.table import NgramTable, TableFiles
from localspec.memory.texts import Lesson
from tests.memory.tables import FP, files_in, no_piece, refuse, remember

STEPS: list[tuple[type, str]] = [
    (NgramTable, "spread"),
    (TableFiles, "_write"),
    (TableFiles, "_map"),
    (NgramTable, "supersede"),
]
MINE, OTHER = "chat:1", "chat:2"
TEXT = [(i * i * 31 + i * 7) % 50_000 for i in range(1800)]
MORE = [50_000 + token for token in TEXT]


def at_step(
    monkeypatch: pytest.MonkeyPatch, step: tuple[type, str], when: str, act: Callable[[], None]
) -> None:
    """Do ``act`` once, in the middle of a growth: before or after one of its steps."""
    owner, name = step
    original, is_growing, done = getattr(owner, name), threading.Event(), threading.Event()
    grow = TableFiles.grow

    def growing(self: TableFiles, *arguments: Any) -> NgramTable:
        is_growing.set()
        return grow(self, *arguments)

    def interrupted(self: Any, *arguments: Any) -> Any:
        is_now = is_growing.is_set() and not done.is_set()
        if is_now and when == "before":
            done.set()
            act()
        result = original(self, *arguments)
        if is_now and when == "after":
            done.set()
            act()
        return result

    monkeypatch.setattr(TableFiles, "grow", growing)
    monkeypatch.setattr(owner, name, interrupted)


def left(folder: Path) -> int:
    """Entries of the forgotten source in the table that is used next."""
    table = files_in(folder).open("user")
    assert table is not None
    count = int(np.count_nonzero(table.entries().tags == tag_of(MINE)))
    table.close()
    return count


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS, ids=[name for _, name in STEPS])
@pytest.mark.parametrize("by", ["engine", "command", "both"])
def test_nothing_forgotten_survives_growth(
    by: str, step: tuple[type, str], when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Memory(tmp_path, FP, no_piece, notice=refuse)
    remember(memory, TEXT, source=MINE)
    command = threading.Thread(target=lambda: forget(tmp_path, refuse, source=MINE))
    done = threading.Event()

    def act() -> None:
        done.set()
        if by != "command":
            memory.forget(MINE)
        if by != "engine":
            command.start()

    assert left(tmp_path) > 5000
    at_step(monkeypatch, step, when, act)
    memory.learn(Lesson(MORE, None, OTHER))
    while memory.work():
        pass
    assert done.is_set()
    if by != "engine":
        command.join()
    assert left(tmp_path) == 0
    (table,) = stats(tmp_path, refuse)
    assert set(table.sources) == {OTHER} and table.capacity > 1 << 14
    memory.close()


def test_entries_whose_name_was_lost_are_forgotten_unless_they_may_be_anothers(tmp_path: Path) -> None:
    """A process that is killed between two writes loses a name at most."""
    memory = Memory(tmp_path, FP, no_piece, notice=refuse)
    remember(memory, TEXT[:100], source=MINE)
    memory.close()
    files_in(tmp_path).sources("user").remove(MINE)
    assert forget(tmp_path, refuse, source=MINE) > 100 and left(tmp_path) == 0
