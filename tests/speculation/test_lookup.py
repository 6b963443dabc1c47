"""Prompt lookup: what it finds, and that finding it costs the same at any length; no lookup at all."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.speculation.ngrams import (
    CANDIDATES,
    EVIDENCE,
    MAX_MATCH,
    NO_MATCH,
    Match,
    NgramIndex,
    PromptLookup,
)
from localspec.speculation.proposer import PlainDecoding, Proposer
from tests.conformance.proposer import ProposerConformance, ask


class TestNothing(ProposerConformance):
    def make(self) -> Proposer:
        return PlainDecoding()


class TestPromptLookup(ProposerConformance):
    def make(self) -> Proposer:
        return PromptLookup(n_min=1, n_max=3)


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ([1, 2, 3, 4, 9, 1, 2], (3, 4, 9, 1)),
        ([1, 2, 7, 1, 2, 8, 1, 2], (8, 1, 2, 8)),  # the newest occurrence, then the copy itself
        ([5, 1, 2, 6, 0, 1, 2, 7, 5, 1, 2], (6, 0, 1, 2)),  # the longest match beats the newest
        ([1, 2, 3], ()),
        ([4, 4, 4], (4, 4, 4, 4)),
    ],
)
def test_what_is_copied(context: list[int], expected: tuple[int, ...]) -> None:
    assert PromptLookup(n_min=1, n_max=5).propose([ask(context, 4)])[0].tokens == expected


def test_a_match_is_measured_beyond_n_max() -> None:
    text = [1, 2, 3, 4, 5, 6, 7]
    draft = PromptLookup(n_min=2, n_max=3).propose([ask([*text, 0, *text], 3)])[0]
    assert draft.evidence == EVIDENCE[7:10] and draft.tokens == (0, 1, 2)


def test_of_several_occurrences_the_longest_match_is_copied() -> None:
    """The newest one shares five tokens with the end, the older one eight."""
    tail = [1, 2, 3, 4, 5]
    context = [8, 7, 6, *tail, 50, 9, *tail, 60, 8, 7, 6, *tail]
    draft = PromptLookup().propose([ask(context, 1)])[0]
    assert draft.tokens == (50,) and draft.evidence == (EVIDENCE[8],)


def test_evidence_grows_with_every_token() -> None:
    text = [*range(40)]
    draft = PromptLookup().propose([ask([*text, 99, *text[:4]], 20)])[0]
    assert list(draft.evidence) == sorted(draft.evidence) and len(set(draft.evidence)) > 4


def common_suffix(text: Sequence[int], end: int) -> int:
    """Return the number of tokens before ``end`` that equal the last ones of ``text``."""
    n = 0
    while n < end and n < MAX_MATCH and text[end - 1 - n] == text[-1 - n]:
        n += 1
    return n


def naive(text: Sequence[int], n_min: int, n_max: int) -> Match:
    """The definition, by a scan: of the newest occurrences that match n_max tokens, or n_min if none does,
    the one that matches most; the newest of equals."""
    lengths = {end: common_suffix(text, end) for end in range(len(text) - 1, 0, -1)}
    if (longest := max(lengths.values(), default=0)) < n_min:
        return NO_MATCH
    order = n_max if longest >= n_max else n_min
    ends = [end for end, length in lengths.items() if length >= order][:CANDIDATES]
    best = max(ends, key=lambda end: lengths[end])
    return Match(best, lengths[best])


@given(
    text=st.lists(st.integers(0, 3), min_size=1, max_size=60),
    cuts=st.lists(st.integers(1, 10), max_size=20),
    n_min=st.integers(1, 3),
    more=st.integers(0, 2),
)
def test_the_index_finds_what_a_scan_finds_however_the_text_grows(
    text: list[int], cuts: list[int], n_min: int, more: int
) -> None:
    index, length = NgramIndex(n_min, n_min + more), 0
    for cut in (*cuts, len(text)):
        length = min(len(text), length + cut)
        index.extend(text[:length])
        assert index.find(text[:length]) == naive(text[:length], n_min, n_min + more)


class CountingList(list[int]):
    """A context that counts how often it is read."""

    reads = 0

    def __getitem__(self, key):  # type: ignore[no-untyped-def]
        self.reads += 1
        return super().__getitem__(key)


@pytest.mark.parametrize("length", [1_000, 8_000, 32_000])
def test_a_round_reads_the_context_as_often_at_any_length(length: int) -> None:
    rng = random.Random(0)
    context = CountingList(rng.randrange(50) for _ in range(length))
    lookup = PromptLookup()
    lookup.propose([ask(context, 4)])
    context.reads = 0
    for _ in range(100):
        context.append(rng.randrange(50))
        lookup.propose([ask(context, 4)])
    # Per round: 4 orders for the new token, 4 to look up, 8 candidates of at most 32 tokens to measure
    # (two reads each), two to compare, 4 copied.
    assert context.reads <= 100 * (4 + 4 + CANDIDATES * (2 * 32 + 2) + 4)


def test_a_stopped_request_is_forgotten() -> None:
    lookup = PromptLookup(n_min=1)
    lookup.propose([ask([1, 2, 3, 1], 2, request=4)])
    lookup.stop(4)
    assert lookup.propose([ask([9, 8, 9], 2, request=4)])[0].tokens == (8, 9)
