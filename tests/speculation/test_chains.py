"""The memory's chains over tables that are written out here, and the plain rules over recording members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from localspec.speculation.draft import NOTHING, Ask, Draft
from localspec.speculation.memory import LEVELS, REACH, MemoryRecall
from localspec.speculation.proposer import Proposer
from localspec.speculation.rules import PROBE, Ema, Fixed
from tests.conformance.proposer import ask


class Entry(NamedTuple):
    token: int
    order: int
    score: int
    slot: int


class Written:
    """A table with the next tokens of some contexts; a hash is the context itself, as a number."""

    def __init__(self, entries: dict[tuple[int, ...], tuple[int, int]]) -> None:
        self._entries = {
            number(gram): Entry(token, len(gram), score, slot)
            for slot, (gram, (token, score)) in enumerate(entries.items())
        }
        self.credits: list[tuple[int, int, bool]] = []

    def find(self, hashes: Sequence[int]) -> Entry | None:
        return next((self._entries[value] for value in hashes if value in self._entries), None)

    def credit(self, slot: int, token: int, *, accepted: bool) -> None:
        self.credits.append((slot, token, accepted))


def number(gram: Sequence[int]) -> int:
    value = len(gram)
    for token in gram:
        value = 1000 * value + token
    return value


class Spelt:
    """Hashes that can be read: see :func:`number`."""

    orders: Sequence[int] = (3, 2)

    def __init__(self) -> None:
        self.rolls = 0
        self.longest = 0

    def hashes_of(self, context: Sequence[int]) -> Sequence[int]:
        self.longest = max(self.longest, len(context))
        return [number(context[-n:]) for n in self.orders if n <= len(context)]

    def rolled(self, value: int, oldest: int, newest: int) -> int:
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


def recall(*tables: Written, keys: Spelt | None = None) -> MemoryRecall:
    return MemoryRecall(lambda workspace: tables, keys or Spelt())


def one(proposer: Proposer, request: Ask) -> Draft:
    return proposer.propose([request])[0]


CHAIN = {(1, 2, 3): (4, 9), (2, 3, 4): (5, 3), (4, 5): (6, 1), (5, 6): (7, 0)}
"""two links of the longest order, then two of the shorter one"""


def test_a_chain_goes_from_the_longest_order_to_shorter_ones() -> None:
    keys = Spelt()
    draft = one(recall(Written(CHAIN), keys=keys), ask([1, 2, 3], 9))
    assert draft.tokens == (4, 5, 6, 7) and draft.match_length == 3
    # Ranks: the order 3 is the longer of two; levels: by score.
    assert draft.evidence == (4 + LEVELS[9], 4 + LEVELS[3], LEVELS[1], LEVELS[0])
    assert keys.rolls == 2


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
    opened: list[str | None] = []

    def tables(workspace: str | None) -> Sequence[Written]:
        opened.append(workspace)
        return [Written(CHAIN)]

    proposer = MemoryRecall(tables, Spelt())
    for _ in range(3):
        one(proposer, ask([1, 2, 3], 2)._replace(workspace="/w"))
    one(proposer, ask([1, 2, 3], 2, request=2))
    assert opened == ["/w", None]
    proposer.stop(1)
    one(proposer, ask([1, 2, 3], 2)._replace(workspace="/w"))
    assert opened == ["/w", None, "/w"]


def test_no_more_of_a_long_context_is_looked_at_than_tables_know() -> None:
    keys, context = Spelt(), [8] * 5000 + [1, 2, 3]
    assert one(recall(Written(CHAIN), keys=keys), ask(context, 4)).tokens == (4, 5, 6, 7)
    assert keys.longest <= REACH + 4 and len(context) == 5003


def test_without_tables_or_entries_there_is_nothing_to_offer() -> None:
    assert one(recall(), ask([1, 2, 3], 4)) is NOTHING
    assert one(recall(Written({})), ask([1, 2, 3], 4)) is NOTHING
    assert one(recall(Written(CHAIN)), ask([1, 2, 3], 0)) is NOTHING


# The plain rules.


class Member(Proposer):
    """A member that offers as many tokens as requested, up to ``most``."""

    def __init__(self, name: str, most: int = 99) -> None:
        self.name, self.most = name, most
        self.asked: list[tuple[int, int]] = []
        self.observed: list[int] = []
        self.stopped: list[int] = []

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        self.asked += [(each.request, each.k) for each in asks]
        return [self._draft(min(each.k, self.most)) for each in asks]

    def _draft(self, k: int) -> Draft:
        return Draft((7,) * k, self.name) if k else NOTHING

    def observe(self, request: int, draft: Draft, accepted: int) -> None:
        self.observed.append(request)

    def stop(self, request: int) -> None:
        self.stopped.append(request)


def test_who_comes_first_leaves_nothing_for_the_others_to_be_asked() -> None:
    first, second = Member("first"), Member("second")
    rule = Fixed([first, second], 4)
    drafts = rule.propose([ask([1], 9, request=1), ask([1], 2, request=2)])
    assert [len(draft.tokens) for draft in drafts] == [4, 2] and second.asked == []
    first.most = 0
    assert [draft.source for draft in rule.propose([ask([1], 9)])] == ["second"]


def test_only_the_member_whose_draft_it_was_hears_how_it_fared_and_all_of_the_end() -> None:
    first, second = Member("first"), Member("second")
    rule = Ema([first, second], 4)
    rule.observe(5, Draft((7, 7), "second"), 1)
    rule.stop(5)
    assert (first.observed, second.observed) == ([], [5])
    assert first.stopped == second.stopped == [5]


def test_averages_are_of_one_member_in_one_request() -> None:
    first, second = Member("first"), Member("second")
    rule = Ema([first, second], 4, alpha=1.0)
    rule.observe(1, Draft((7, 7), "first"), 0)
    drafts = rule.propose([ask([1], 9, request=1), ask([1], 9, request=2)])
    assert [(draft.source, len(draft.tokens)) for draft in drafts] == [("second", 2), ("first", 2)]
    assert first.asked == [(1, 0), (2, 2)] and second.asked == [(1, 2)]


@pytest.mark.parametrize(
    ("average", "k", "length"),
    [
        (0.81, 8, 8),
        (0.8, 8, 6),
        (0.51, 8, 6),
        (0.5, 8, 1),
        (0.3, 8, 1),
        (0.29, 8, 0),
        (0.6, 2, 1),
        (0.6, 1, 1),
    ],
)
def test_the_length_for_each_average(average: float, k: int, length: int) -> None:
    member = Member("m")
    rule = Ema([member], k, alpha=1.0)
    rule.observe(1, Draft((7,) * 100, "m"), round(100 * average))
    rule.propose([ask([1], 20)])
    assert member.asked == [(1, length)]


def test_probes_come_at_their_distance_and_one_that_is_right_brings_it_back() -> None:
    member = Member("m")
    rule = Ema([member], 6, alpha=0.5)
    for _ in range(3):
        rule.observe(1, Draft((7,), "m"), 0)
    for _ in range(2 * PROBE):
        rule.propose([ask([1], 20)])
    assert [i + 1 for i, (_, k) in enumerate(member.asked) if k] == [PROBE, 2 * PROBE]
    rule.observe(1, Draft((7,), "m"), 1)
    rule.propose([ask([1], 20)])
    assert member.asked[-1] == (1, 4)  # 0.0875, half of the way to 1: over a half


def test_a_request_that_wants_little_gets_little() -> None:
    member = Member("m")
    Ema([member], 8).propose([ask([1], 0), ask([1], 3)])
    assert [k for _, k in member.asked] == [0, 1]
