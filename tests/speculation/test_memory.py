"""The memory as a proposer, over real tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from localspec.memory.lesson import Lesson
from localspec.memory.memory import Memory
from localspec.speculation.draft import Draft
from localspec.speculation.memory import MemoryRecall
from localspec.speculation.proposer import Proposer
from tests.conformance.proposer import ProposerConformance, ask

SONG = [5, 9, 2, 8, 4, 7, 3, 3, 1, 6, 6, 2, 9, 9, 4, 1, 8, 8, 7, 2, 5, 1, 1, 3, 9, 4]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    memory = Memory(tmp_path, "0123456789abcdef", lambda token: b" ")
    yield memory
    memory.close()


def teach(memory: Memory, tokens: Sequence[int], workspace: str | None = None, source: str = "run") -> None:
    memory.learn(Lesson(tokens, workspace, source))
    while memory.work():
        pass


def propose(memory: Memory, context: Sequence[int], k: int = 5, workspace: str | None = None) -> Draft:
    asked = ask(list(context), k)._replace(workspace=workspace)
    return MemoryRecall(memory.tables, memory).propose([asked])[0]


class TestMemoryRecall(ProposerConformance):
    vocabulary_size = 256

    @pytest.fixture(autouse=True)
    def _taught(self, memory: Memory) -> None:
        teach(memory, SONG)
        self.memory = memory

    def make(self) -> Proposer:
        return MemoryRecall(self.memory.tables, self.memory)


def test_what_followed_is_drafted(memory: Memory) -> None:
    teach(memory, SONG)
    draft = propose(memory, SONG[:6], 8)
    assert draft.tokens == tuple(SONG[6:14]) and draft.source == "memory"
    assert len(draft.evidence) == 8 and draft.match_length == 5


def test_a_long_chain_is_the_same_as_one_token_at_a_time(memory: Memory) -> None:
    """The longest order's hash is rolled along: it must stay the hash of the context."""
    text = [(7 * i * i + i // 3) % 251 for i in range(200)]
    teach(memory, text)
    draft = propose(memory, text[:30], 20)
    single = [propose(memory, text[: 30 + i], 1).tokens[0] for i in range(20)]
    assert list(draft.tokens) == single == text[30:50]


def test_surer_evidence_for_longer_matches_and_higher_scores(memory: Memory) -> None:
    teach(memory, SONG)
    short, long = propose(memory, SONG[3:6], 1), propose(memory, SONG[:20], 1)
    assert short.evidence[0] < long.evidence[0]
    again = MemoryRecall(memory.tables, memory)
    for _ in range(8):
        draft = again.propose([ask(SONG[:20], 1)])[0]
        again.observe(1, draft, 1)
    assert propose(memory, SONG[:20], 1).evidence[0] > long.evidence[0]


def test_what_is_wrong_is_forgotten(memory: Memory) -> None:
    teach(memory, SONG)
    recall, context = MemoryRecall(memory.tables, memory), SONG[3:6]
    for _ in range(3):
        draft = recall.propose([ask(context, 1)])[0]
        if not draft.tokens:
            break
        recall.observe(1, draft, 0)
    assert not recall.propose([ask(context, 1)])[0].tokens


def test_a_request_that_is_not_to_be_remembered_leaves_no_trace(memory: Memory) -> None:
    teach(memory, SONG)
    before = [table.entries() for table in memory.tables(None)]
    recall, asked = MemoryRecall(memory.tables, memory), ask(SONG[:8], 4)._replace(remember=False)
    for accepted in (0, 2, 4):
        recall.observe(1, recall.propose([asked])[0], accepted)
    after = [table.entries() for table in memory.tables(None)]
    assert [[list(column) for column in table] for table in before] == [
        [list(column) for column in table] for table in after
    ]


def test_workspaces_see_their_own_and_the_users(memory: Memory) -> None:
    teach(memory, SONG, workspace="/one")
    teach(memory, [token + 100 for token in SONG])
    assert propose(memory, SONG[:6], 3, workspace="/one").tokens == tuple(SONG[6:9])
    assert not propose(memory, SONG[:6], 3, workspace="/two").tokens
    assert not propose(memory, SONG[:6], 3).tokens
    users = [token + 100 for token in SONG]
    assert propose(memory, users[:6], 3, workspace="/one").tokens == tuple(users[6:9])


def test_an_empty_memory_offers_nothing(memory: Memory) -> None:
    assert propose(memory, SONG).tokens == ()
