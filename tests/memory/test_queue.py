"""The queue of texts to learn: bounded, each part of a chat learnt once, no forgotten text learnt."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.memory import memory as memory_module
from localspec.memory.memory import WAITING, Memory, forget, stats
from localspec.memory.table import ORDERS, hashes_in, hashes_of
from localspec.memory.texts import MARGIN, Lesson, Taught, _marks
from tests.memory.tables import FP, files_in, no_piece, refuse, remember, words

CHAT = random.Random(1).choices(range(50_000), k=9000)
TURNS = [CHAT[: 360 * turn] for turn in range(1, 26)]
"""the texts of a chat's turns, each with all before it: 9,000 tokens in the last, 117,000 together"""


def memory_in(folder: Path, notices: list[str] | None = None) -> Memory:
    return Memory(folder, FP, no_piece, notice=refuse if notices is None else notices.append)


def recalled(memory: Memory, text: Sequence[int], at: int) -> bool:
    tables = memory.tables(None)
    found = [table.find(hashes_of(text[:at])) for table in tables]
    return any(each is not None and each.token == text[at] for each in found)


def learnt(folder: Path) -> int:
    (table,) = stats(folder, refuse)
    return table.tokens


def test_of_a_chat_what_is_new_is_learnt(tmp_path: Path) -> None:
    memory = memory_in(tmp_path)
    for turn in TURNS:
        remember(memory, turn, source="chat:1")
    assert len(CHAT) <= learnt(tmp_path) < 1.5 * len(CHAT)
    assert sum(not recalled(memory, CHAT, at) for at in range(20, len(CHAT))) < 0.005 * len(CHAT)
    memory.close()


def test_a_turn_whose_beginning_was_dropped_or_changed_is_learnt_where_it_is_new(tmp_path: Path) -> None:
    memory = memory_in(tmp_path)
    remember(memory, CHAT[:4000], source="chat:1")
    before = learnt(tmp_path)
    changed = [7, 8, 9, *CHAT[1000:2000], 60_000, *CHAT[2001:4200]]
    remember(memory, changed, source="chat:1")
    assert learnt(tmp_path) - before < 1000
    assert all(recalled(memory, changed, at) for at in (1000, 1004, 1010, 3190, len(changed) - 1))
    remember(memory, CHAT[:4000], source="chat:2")
    assert learnt(tmp_path) - before > 4000, "another chat is another source"
    memory.close()


@pytest.mark.parametrize("first", [1, ORDERS[0] - 1, ORDERS[0], ORDERS[0] + 1])
def test_a_chat_that_began_shortly_goes_on(first: int, tmp_path: Path) -> None:
    """Of as many tokens as the longest order has, there is no n-gram that is followed by a token."""
    memory = memory_in(tmp_path)
    remember(memory, CHAT[:first], source="chat:1")
    remember(memory, CHAT[:100], source="chat:1")
    assert recalled(memory, CHAT, 99)
    memory.close()


def test_what_was_forgotten_is_not_new_after_much_else() -> None:
    """A forgotten n-gram whose mark was replaced would be learnt again with the chat's next turn."""
    taught, text = Taught(ORDERS[0]), random.Random(1).choices(range(50_000), k=50_000)
    key = ("user", "chat:1")
    list(taught.skip(key, text))
    assert all(
        taught._has(_marks(key, hashes, following)).all() for _, hashes, following in taught._grams(text)
    )


@given(st.data())
def test_nothing_new_is_left_out(data: st.DataObject) -> None:
    """For texts of few tokens, where n-grams repeat themselves."""
    taught, order = Taught(ORDERS[0]), ORDERS[0]
    known: set[tuple[int, ...]] = set()
    for _ in range(3):
        text = data.draw(st.lists(st.integers(0, 1), max_size=400))
        looking = taught.fresh(("t", "s"), text)
        parts: list[tuple[int, int]] = []
        while True:
            try:
                next(looking)
            except StopIteration as stopped:
                parts = stopped.value
                break
        inside = {at for start, end in parts for at in range(start + order, end)}
        grams = {at: tuple(text[at - order : at + 1]) for at in range(order, len(text))}
        assert all(at in inside for at, gram in grams.items() if gram not in known)
        assert all(end - start >= min(len(text), 2 * MARGIN) for start, end in parts if known)
        for start, end in parts:
            hashes = hashes_in(words(text[start:end]), (order,)).get(order)
            if hashes is not None:
                taught.add(("t", "s"), hashes[:-1], words(text[start + order : end]))
                known |= {grams[at] for at in range(start + order, end)}


@pytest.mark.parametrize("length", [1, 1000, 50_000])
def test_no_more_waits_than_can_be_learnt(length: int, tmp_path: Path) -> None:
    notices: list[str] = []
    memory = memory_in(tmp_path, notices)
    texts = 3 * WAITING // (length + 16)
    for number in range(texts):
        memory.learn(Lesson([number] * length, None, f"chat:{number}"))
    waiting = [len(lesson.tokens) for lesson, _ in memory._lessons]
    assert sum(waiting) <= WAITING and memory.lost == texts * length - sum(waiting) > 0
    assert len(notices) == 1 and "not learnt" in notices[0]
    memory._lessons.clear()
    memory.close()


def test_one_text_that_is_longer_is_learnt(tmp_path: Path) -> None:
    memory = memory_in(tmp_path)
    memory.learn(Lesson(range(WAITING + 1), None, "file:a"))
    assert len(memory._lessons) == 1 and memory.lost == 0
    memory._lessons.clear()
    memory.close()


def test_the_end_takes_a_bounded_time_and_tells_what_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notices: list[str] = []
    memory = memory_in(tmp_path, notices)
    remember(memory, CHAT[:100], source="chat:1")
    for number in range(20):
        rng = random.Random(number)
        memory.learn(Lesson([rng.randrange(50_000) for _ in range(10_000)], None, f"run {number}"))
    monkeypatch.setattr(memory_module, "CLOSE_S", 0.05)
    memory.close()
    assert memory.lost >= 100_000, "it would have taken many times as long"
    assert notices == ["some texts were not learnt: the engine ended first"]
    assert files_in(tmp_path).open("user") is not None


def test_what_is_to_be_erased_is_erased_at_the_end_though_there_is_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = memory_in(tmp_path, [])
    remember(memory, CHAT[:100], source="chat:1")
    memory.learn(Lesson(CHAT, None, "chat:2"))
    memory._step()
    memory.forget("chat:1")
    monkeypatch.setattr(memory_module, "CLOSE_S", 0.0)
    memory.close()
    assert "chat:1" not in files_in(tmp_path).sources("user").names()


def forget_while_learning(memory: Memory, folder: Path, text: Sequence[int], steps: int, by: str) -> None:
    """Learn a text of chat 1 for ``steps`` steps; then forget the chat by the engine or by a command."""
    memory.learn(Lesson(text, None, "chat:1"))
    for _ in range(steps):
        memory._step()
    if by == "engine":
        memory.forget("chat:1")
    else:
        forget(folder, refuse, source="chat:1")


def share_recalled(memory: Memory, text: Sequence[int], places: range) -> float:
    return sum(recalled(memory, text, at) for at in places) / len(places)


@pytest.mark.parametrize("by", ["engine", "command"])
@pytest.mark.parametrize("steps", [0, 1, 10, 40])
@pytest.mark.parametrize("is_noted", [False, True], ids=["at once", "later"])
def test_what_waited_when_it_was_forgotten_does_not_come_back(
    by: str, steps: int, tmp_path: Path, *, is_noted: bool
) -> None:
    memory = memory_in(tmp_path)
    remember(memory, [1] * 30, source="run")
    remember(memory, CHAT[-20:], source="chat:1")
    forget_while_learning(memory, tmp_path, CHAT[:2000], steps, by)
    while is_noted and memory.work():
        pass
    remember(memory, CHAT[:3000], source="chat:1")
    assert share_recalled(memory, CHAT, range(100, 1900)) == 0
    assert share_recalled(memory, CHAT, range(2020, 3000)) > 0.99, "what was said since is learnt"
    memory.close()


def test_a_chat_that_waited_when_its_table_was_forgotten_does_not_come_back(tmp_path: Path) -> None:
    memory = memory_in(tmp_path)
    remember(memory, [1] * 30, source="run")
    memory.learn(Lesson(CHAT[:2000], None, "chat:1"))
    forget(tmp_path, refuse)
    memory.learn(Lesson(CHAT[:3000], None, "chat:1"))
    while memory.work():
        pass
    assert share_recalled(memory, CHAT, range(100, 1900)) == 0
    assert share_recalled(memory, CHAT, range(2020, 3000)) > 0.99
    memory.close()


@pytest.mark.parametrize("steps", [0, 3])
def test_a_chat_whose_table_could_not_be_opened_is_learnt_with_its_next_turn(
    steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notices: list[str] = []
    memory = memory_in(tmp_path, notices)
    remember(memory, [1] * 30, source="run")
    memory.learn(Lesson(CHAT[:2000], None, "chat:1"))
    for _ in range(steps):
        memory._step()
    memory._tables.clear()
    with monkeypatch.context() as patch:
        patch.setattr(memory._files, "open", _too_many_files)
        while memory.work():
            pass
    assert any("too many open files" in each.lower() for each in notices)
    remember(memory, CHAT[:2100], source="chat:1")
    assert share_recalled(memory, CHAT, range(100, 2100)) > 0.99
    memory.close()


def _too_many_files(name: str, *, wait: bool = True) -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
