"""The memory as a proposer: chains over tables that are written out here, and over real ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest

from localspec.engine.recall import LEVELS, REACH, MemoryRecall
from localspec.memory.memory import Memory
from localspec.memory.ngrams import MemoryText
from localspec.memory.table import Recall
from localspec.speculation.proposer import NOTHING, Ask, Draft, Proposer
from tests.conformance.proposer import ProposerConformance, ask


class Written:
    """A table with the next tokens of some contexts; a hash is the context itself, as a number."""

    def __init__(self, entries: dict[tuple[int, ...], tuple[int, int]]) -> None:
        self._entries = {
            number(gram): Recall(token, len(gram), score, slot)
            for slot, (gram, (token, score)) in enumerate(entries.items())
        }
        self.credits: list[tuple[int, int, bool]] = []

    def find(self, hashes: Sequence[int]) -> Recall | None:
        return next((self._entries[value] for value in hashes if value in self._entries), None)

    def credit(self, slot: int, token: int, *, accepted: bool) -> None:
        self.credits.append((slot, token, accepted))


def number(gram: Sequence[int]) -> int:
    value = len(gram)
    for token in gram:
        value = 1000 * value + token
    return value


class Spelt:
    """A memory of tables with hashes that can be read: see :func:`number`."""

    orders: Sequence[int] = (3, 2)

    def __init__(self, *tables: Written) -> None:
        self._tables = tables
        self.opened: list[str | None] = []
        self.rolls = 0
        self.longest = 0

    def tables(self, workspace: str | None) -> Sequence[Written]:
        self.opened.append(workspace)
        return self._tables

    def hashes_of(self, context: Sequence[int]) -> Sequence[int]:
        self.longest = max(self.longest, len(context))
        return [number(context[-n:]) for n in self.orders if n <= len(context)]

    def roll_hash(self, value: int, oldest: int, newest: int) -> int:
        self.rolls += 1
        two = value % 10**6
        assert value // 10**6 % 1000 == oldest
        return (3 * 10**6 + two) * 1000 + newest


class Stops:
    """A gate that admits no evidence under ``least``."""

    def __init__(self, least: int) -> None:
        self._least = least
        self.seen: list[int] = []

    def goes_on(self) -> bool:
        return True

    def admits(self, evidence: int) -> bool:
        self.seen.append(evidence)
        return evidence >= self._least


def recall(*tables: Written) -> MemoryRecall:
    return recall_by(Spelt(*tables))


def recall_by(spelt: Spelt) -> MemoryRecall:
    return MemoryRecall(cast(Memory, spelt))


def one(proposer: Proposer, request: Ask) -> Draft:
    return proposer.propose([request])[0]


CHAIN = {(1, 2, 3): (4, 9), (2, 3, 4): (5, 3), (4, 5): (6, 1), (5, 6): (7, 0)}
"""two links of the longest order, then two of the shorter one"""


def test_a_chain_goes_from_the_longest_order_to_shorter_ones() -> None:
    spelt = Spelt(Written(CHAIN))
    draft = one(recall_by(spelt), ask([1, 2, 3], 9))
    assert draft.tokens == (4, 5, 6, 7)
    # Ranks: the order 3 is the longer of two; levels: by score.
    assert draft.evidence == (4 + LEVELS[9], 4 + LEVELS[3], LEVELS[1], LEVELS[0])
    assert spelt.rolls == 2


def test_a_chain_comes_back_to_the_longest_order() -> None:
    entries = {(1, 2): (3, 3), (1, 2, 3): (4, 3), (2, 3, 4): (5, 3)}
    assert one(recall(Written(entries)), ask([9, 1, 2], 3)).tokens == (3, 4, 5)


def test_the_first_table_that_knows_anything_is_believed_at_every_link() -> None:
    """The workspace's own table first, though the user's has a longer match; then any with a match."""
    own, users = Written({(2, 3): (7, 3)}), Written({(1, 2, 3): (4, 9), (2, 3, 7): (8, 3), (7, 8): (9, 3)})
    proposer = recall(own, users)
    assert one(proposer, ask([1, 2, 3], 3)).tokens == (7, 8, 9)
    proposer.observe(1, Draft((7, 8, 9), "memory"), 1)
    assert (own.credits, users.credits) == ([(0, 7, True)], [(1, 8, False)])


@pytest.mark.parametrize(
    ("accepted", "credits"),
    [
        (0, [(0, 4, False)]),
        (2, [(0, 4, True), (1, 5, True), (2, 6, False)]),
        (4, [(0, 4, True), (1, 5, True), (2, 6, True), (3, 7, True)]),
    ],
)
def test_credit_ends_with_the_first_wrong_token(accepted: int, credits: list[tuple[int, int, bool]]) -> None:
    """Tokens behind the first wrong one were never verified."""
    table = Written(CHAIN)
    proposer = recall(table)
    draft = one(proposer, ask([1, 2, 3], 9))
    proposer.observe(1, draft, accepted)
    assert table.credits == credits
    proposer.observe(1, draft, accepted)
    assert table.credits == credits  # once


def test_of_a_draft_that_was_cut_only_what_was_verified_is_judged() -> None:
    table = Written(CHAIN)
    proposer = recall(table)
    draft = one(proposer, ask([1, 2, 3], 9)).cut(2)
    proposer.observe(1, draft, 2)
    assert table.credits == [(0, 4, True), (1, 5, True)]


def test_credit_goes_to_the_newest_draft_of_the_request_it_is_about() -> None:
    table = Written(CHAIN)
    proposer = recall(table)
    one(proposer, ask([1, 2, 3], 1))
    later = one(proposer, ask([7, 4, 5], 1))
    one(proposer, ask([1, 2, 3], 1, request=2))
    proposer.observe(1, later, 1)
    assert table.credits == [(2, 6, True)]
    proposer.stop(2)
    proposer.observe(2, later, 0)
    assert table.credits == [(2, 6, True)]


def test_a_gate_ends_a_chain_with_the_token_that_it_does_not_admit() -> None:
    gate = Stops(5)
    draft = one(recall(Written(CHAIN)), ask([1, 2, 3], 9)._replace(gate=gate))
    assert draft.tokens == (4, 5, 6)
    assert tuple(gate.seen) == draft.evidence == (7, 5, 0)


def test_tables_are_opened_once_for_a_request_and_anew_for_the_next() -> None:
    spelt = Spelt(Written(CHAIN))
    proposer = recall_by(spelt)
    for _ in range(3):
        one(proposer, ask([1, 2, 3], 2)._replace(workspace="/w"))
    one(proposer, ask([1, 2, 3], 2, request=2))
    assert spelt.opened == ["/w", None]
    proposer.stop(1)
    one(proposer, ask([1, 2, 3], 2)._replace(workspace="/w"))
    assert spelt.opened == ["/w", None, "/w"]


def test_no_more_of_a_long_context_is_looked_at_than_tables_know() -> None:
    spelt, context = Spelt(Written(CHAIN)), [8] * 5000 + [1, 2, 3]
    assert one(recall_by(spelt), ask(context, 4)).tokens == (4, 5, 6, 7)
    assert spelt.longest <= REACH + 4 and len(context) == 5003


def test_without_tables_or_entries_there_is_nothing_to_offer() -> None:
    assert one(recall(), ask([1, 2, 3], 4)) is NOTHING
    assert one(recall(Written({})), ask([1, 2, 3], 4)) is NOTHING
    assert one(recall(Written(CHAIN)), ask([1, 2, 3], 0)) is NOTHING


SONG = [5, 9, 2, 8, 4, 7, 3, 3, 1, 6, 6, 2, 9, 9, 4, 1, 8, 8, 7, 2, 5, 1, 1, 3, 9, 4]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    memory = Memory(tmp_path, "0123456789abcdef", lambda token: b" ")
    yield memory
    memory.close()


def teach(memory: Memory, tokens: Sequence[int], workspace: str | None = None, source: str = "run") -> None:
    memory.learn(MemoryText(tokens, workspace, source))
    while memory.work():
        pass


def propose(memory: Memory, context: Sequence[int], k: int = 5, workspace: str | None = None) -> Draft:
    asked = ask(list(context), k)._replace(workspace=workspace)
    return MemoryRecall(memory).propose([asked])[0]


class TestMemoryRecall(ProposerConformance):
    vocabulary_size = 256

    @pytest.fixture(autouse=True)
    def _taught(self, memory: Memory) -> None:
        teach(memory, SONG)
        self.memory = memory

    def make(self) -> Proposer:
        return MemoryRecall(self.memory)


def test_a_long_chain_is_the_same_as_one_token_at_a_time(memory: Memory) -> None:
    """The longest order's hash is rolled along: it must stay the hash of the context."""
    text = [(7 * i * i + i // 3) % 251 for i in range(200)]
    teach(memory, text)
    draft = propose(memory, text[:30], 20)
    single = [propose(memory, text[: 30 + i], 1).tokens[0] for i in range(20)]
    assert list(draft.tokens) == single == text[30:50]


def test_what_is_wrong_is_forgotten(memory: Memory) -> None:
    teach(memory, SONG)
    recall, context = MemoryRecall(memory), SONG[3:6]
    for _ in range(3):
        draft = recall.propose([ask(context, 1)])[0]
        if not draft.tokens:
            break
        recall.observe(1, draft, 0)
    assert not recall.propose([ask(context, 1)])[0].tokens


def test_a_request_that_is_not_to_be_remembered_leaves_no_trace(memory: Memory) -> None:
    teach(memory, SONG)
    before = [bytes(table._map) for table in memory.tables(None)]
    recall, asked = MemoryRecall(memory), ask(SONG[:8], 4)._replace(remember=False)
    for accepted in (0, 2, 4):
        recall.observe(1, recall.propose([asked])[0], accepted)
    assert [bytes(table._map) for table in memory.tables(None)] == before
