"""The memory as an engine uses it: its queue, learning in small steps, several processes, forgetting."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from localspec.memory import memory as memory_module
from localspec.memory.memory import WAITING, Memory, forget, stats
from localspec.memory.ngrams import MemoryText, NgramBatch, hashes_of
from localspec.memory.table import NgramTable
from tests.memory.tables import FP, files_in, memory_in, recalled, refuse, remember

TEXT = [(7 * i * i + 3 * i) % 1000 for i in range(60)]
OTHER = [2000 + token for token in TEXT]
AFTER = [4000 + token for token in TEXT]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    memory = memory_in(tmp_path)
    yield memory
    memory.close()


def test_what_is_learned_is_recalled_by_the_next_process(memory: Memory, tmp_path: Path) -> None:
    assert memory.tables(None) == () and list(tmp_path.iterdir()) == []
    memory.learn(MemoryText(TEXT, None, "run"))
    memory.close()
    assert recalled(memory_in(tmp_path), TEXT)


def test_a_workspaces_text_goes_to_its_own_table_only(tmp_path: Path) -> None:
    memory, home, other = memory_in(tmp_path / "m"), str(tmp_path / "a"), str(tmp_path / "b")
    remember(memory, TEXT, home)
    remember(memory, OTHER)
    assert recalled(memory, TEXT, home) and recalled(memory, OTHER, home)
    assert not recalled(memory, TEXT) and not recalled(memory, TEXT, other) and recalled(memory, OTHER, other)
    assert [table.header.workspace for table in memory.tables(home)] == [home, ""]
    memory.close()


def test_learning_is_queued_and_done_in_short_steps(memory: Memory) -> None:
    text = [(i * i * 31 + i) % 50_000 for i in range(2000)]
    memory.learn(MemoryText(text, None, "run"))
    assert memory.tables(None) == ()
    calls = 0
    while memory.work():
        calls += 1
    assert 5 <= calls <= 2000
    assert all(recalled(memory, text, at=at) for at in range(20, 2000, 20))


READER = """
import sys
from pathlib import Path
from localspec.memory.ngrams import hashes_of
from tests.memory.tables import no_piece, refuse
from localspec.memory.memory import Memory
memory = Memory(Path(sys.argv[1]), sys.argv[2], no_piece, notice=refuse)
text = [(7 * i * i + 3 * i) % 1000 for i in range(60)]
for line in sys.stdin:
    print(bool([t for t in memory.tables(None) if t.find(hashes_of(text[:40]))]), flush=True)
"""


def test_a_live_process_sees_learning_and_forgetting_at_once(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", READER, str(tmp_path), FP],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    ask, answer, memory = process.stdin, process.stdout, memory_in(tmp_path)

    def recalls() -> bool:
        ask.write("?\n")
        ask.flush()
        return answer.readline() == "True\n"

    assert not recalls()
    for _ in range(2):
        remember(memory, TEXT)
        assert recalls()
        forget(tmp_path, refuse)
        assert not recalls()
    memory.close()
    process.communicate()
    assert process.returncode == 0


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_lesson_that_waits_while_all_is_forgotten_is_dropped(
    memory: Memory, tmp_path: Path, is_begun: bool
) -> None:
    remember(memory, OTHER)
    memory.learn(MemoryText(TEXT * 100, None, "run"))
    if is_begun:
        for _ in range(20):
            memory.work()
    forget(tmp_path, refuse)
    memory.close()
    assert stats(tmp_path, refuse) == []


def test_a_notice_is_given_once(tmp_path: Path) -> None:
    notices: list[str] = []
    (tmp_path / FP).mkdir()
    (tmp_path / FP / "user.ngm").write_bytes(b"junk")
    memory = memory_in(tmp_path, notices.append)
    assert memory.tables(None) == ()
    remember(memory, TEXT)
    remember(memory, OTHER)
    assert recalled(memory, TEXT) and len(notices) == 1 and "is removed" in notices[0]
    memory.close()


def test_a_folder_that_cannot_be_used_is_a_notice_and_no_error(tmp_path: Path) -> None:
    notices: list[str] = []
    (tmp_path / "file").write_text("")
    memory = memory_in(tmp_path / "file", notices.append)
    remember(memory, TEXT)
    remember(memory, OTHER)
    assert memory.tables(None) == () and len(notices) == 1
    memory.close()


WRITER = """
import sys
from pathlib import Path
from localspec.memory.memory import Memory
from tests.memory.tables import no_piece, refuse, remember
memory = Memory(Path(sys.argv[1]), sys.argv[2], no_piece, notice=refuse)
seed = int(sys.argv[3])
for part in range(5):
    remember(memory, [(i * i * 31 + i * seed) % 50_000 for i in range(part * 1000, part * 1000 + 1016)])
memory.close()
"""


def test_several_processes_write_at_once(tmp_path: Path) -> None:
    seeds = (3, 7, 11, 13)
    commands = [[sys.executable, "-c", WRITER, str(tmp_path), FP, str(seed)] for seed in seeds]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE) for command in commands]
    for process in processes:
        assert process.communicate(timeout=60) and process.returncode == 0
    memory = memory_in(tmp_path)
    taught = {seed: [(i * i * 31 + i * seed) % 50_000 for i in range(5000)] for seed in seeds}
    (table,) = memory.tables(None)
    right = wrong = 0
    for text in taught.values():
        for at in range(20, 5000, 7):
            found = table.find(hashes_of(text[:at]))
            right += found is not None and found.token == text[at]
            wrong += found is not None and found.order == 16 and found.token != text[at]
    assert wrong == 0 and right > 0.99 * len(seeds) * len(range(20, 5000, 7))
    memory.close()


@pytest.mark.parametrize("steps", [0, 20, 200])
def test_what_waits_is_forgotten_before_there_is_a_file(memory: Memory, tmp_path: Path, steps: int) -> None:
    memory.learn(MemoryText(TEXT * 100, None, "chat:1"))
    for _ in range(steps):
        memory._step()
    memory.forget("chat:1")
    forget(tmp_path, refuse, source="chat:1")
    memory.learn(MemoryText(OTHER, None, "chat:2"))
    while memory.work():
        pass
    (found,) = stats(tmp_path, refuse)
    assert set(found.sources) == {"chat:2"} and not recalled(memory, TEXT)
    remember(memory, AFTER, source="chat:1")
    assert recalled(memory, AFTER), "what comes after is learned"


def test_what_is_forgotten_while_a_step_is_inserted_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, insert = memory_in(tmp_path), Memory._insert
    remember(memory, OTHER, source="chat:2")

    def late(self: Memory, table: NgramTable, grams: list[NgramBatch], tag: int) -> None:
        forget(tmp_path, refuse, source="chat:1")
        insert(self, table, grams, tag)

    monkeypatch.setattr(Memory, "_insert", late)
    remember(memory, TEXT, source="chat:1")
    (found,) = stats(tmp_path, refuse)
    assert set(found.sources) == {"chat:2"}
    memory.close()


@pytest.mark.parametrize("workspace", ["", "/a\0b", "/\ud800", "x" * (4 << 20)])
def test_what_is_no_path_has_no_table(tmp_path: Path, workspace: str) -> None:
    notices: list[str] = []
    memory = memory_in(tmp_path, notices.append)
    remember(memory, TEXT)
    remember(memory, TEXT, workspace)
    assert len(memory.tables(workspace)) == 1 == len(notices)
    memory.close()


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


def test_one_text_that_is_longer_is_learnt(memory: Memory) -> None:
    memory.learn(MemoryText(range(WAITING + 1), None, "file:a"))
    assert len(memory._lessons) == 1
    memory._lessons.clear()


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
def test_what_waited_when_it_was_forgotten_is_not_learnt(
    memory: Memory, by: str, steps: int, tmp_path: Path
) -> None:
    remember(memory, [1] * 30, source="run")
    remember(memory, CHAT[-20:], source="chat:1")
    forget_while_learning(memory, tmp_path, CHAT[:2000], steps, by)
    memory.learn(MemoryText(CHAT[:3000], None, "chat:1", 2000))
    while memory.work():
        pass
    assert share_recalled(memory, CHAT, range(100, 1900)) == 0
    assert share_recalled(memory, CHAT, range(2020, 3000)) > 0.99, "what was said since is learnt"
