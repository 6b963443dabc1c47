"""The queue of texts to learn: bounded, and no forgotten text learnt."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from localspec.memory import memory as memory_module
from localspec.memory.memory import WAITING, Memory, forget
from localspec.memory.ngrams import MemoryText
from tests.memory.tables import files_in, memory_in, recalled, refuse, remember

CHAT = random.Random(1).choices(range(50_000), k=9000)


@pytest.mark.parametrize("length", [1, 1000, 50_000])
def test_no_more_waits_than_can_be_learnt(length: int, tmp_path: Path) -> None:
    notices: list[str] = []
    memory = memory_in(tmp_path, notices.append)
    texts = 3 * WAITING // (length + 16)
    for number in range(texts):
        memory.learn(MemoryText([number] * length, None, f"chat:{number}"))
    waiting = [len(lesson.tokens) for lesson, _ in memory._lessons]
    assert sum(waiting) <= WAITING and len(waiting) < texts
    assert len(notices) == 1 and "not learnt" in notices[0]
    memory._lessons.clear()
    memory.close()


def test_one_text_that_is_longer_is_learnt(tmp_path: Path) -> None:
    memory = memory_in(tmp_path)
    memory.learn(MemoryText(range(WAITING + 1), None, "file:a"))
    assert len(memory._lessons) == 1
    memory._lessons.clear()
    memory.close()


def test_the_end_takes_a_bounded_time_and_tells_what_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notices: list[str] = []
    memory = memory_in(tmp_path, notices.append)
    remember(memory, CHAT[:100], source="chat:1")
    for number in range(20):
        rng = random.Random(number)
        memory.learn(MemoryText([rng.randrange(50_000) for _ in range(10_000)], None, f"run {number}"))
    monkeypatch.setattr(memory_module, "CLOSE_S", 0.05)
    memory.close()
    assert notices == ["some texts were not learnt: the engine ended first"]
    assert files_in(tmp_path).open("user") is not None


def forget_while_learning(memory: Memory, folder: Path, text: Sequence[int], steps: int, by: str) -> None:
    """Learn a text of chat 1 for ``steps`` steps; then forget the chat by a command, told to the engine or
    not."""
    memory.learn(MemoryText(text, None, "chat:1"))
    for _ in range(steps):
        memory._step()
    if by == "engine":
        memory.forget("chat:1")
    forget(folder, refuse, source="chat:1")


def share_recalled(memory: Memory, text: Sequence[int], places: range) -> float:
    return sum(recalled(memory, text, at=at) for at in places) / len(places)


@pytest.mark.parametrize("by", ["engine", "command"])
@pytest.mark.parametrize("steps", [0, 1, 10, 40])
def test_what_waited_when_it_was_forgotten_is_not_learnt(by: str, steps: int, tmp_path: Path) -> None:
    memory = memory_in(tmp_path)
    remember(memory, [1] * 30, source="run")
    remember(memory, CHAT[-20:], source="chat:1")
    forget_while_learning(memory, tmp_path, CHAT[:2000], steps, by)
    memory.learn(MemoryText(CHAT[:3000], None, "chat:1", 2000))
    while memory.work():
        pass
    assert share_recalled(memory, CHAT, range(100, 1900)) == 0
    assert share_recalled(memory, CHAT, range(2020, 3000)) > 0.99, "what was said since is learnt"
    memory.close()
