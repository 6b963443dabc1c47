"""Hashes: one context at a time and a whole text at once give the same."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from localspec.memory.hashing import ORDERS, hashes_in, hashes_of, roll_hash
from tests.memory.tables import words

TOKENS = st.lists(st.integers(0, 2**24 - 1), max_size=40)


@given(TOKENS)
def test_a_text_at_once_gives_what_each_context_gives(text: list[int]) -> None:
    together = hashes_in(words(text))
    for end in range(1, len(text) + 1):
        fitting = [n for n in ORDERS if n <= end]
        assert list(hashes_of(text[:end])) == [int(together[n][end - n]) for n in fitting]


@given(TOKENS, TOKENS)
def test_only_the_last_tokens_count(before: list[int], text: list[int]) -> None:
    text = text + [7] * ORDERS[0]
    assert hashes_of([*before, *text]) == hashes_of(text)


def test_short_contexts_give_the_short_orders() -> None:
    assert [len(hashes_of(list(range(n)))) for n in (0, 2, 3, 5, 8, 15, 16, 99)] == [0, 0, 1, 2, 3, 3, 4, 4]


def test_a_hash_is_rolled_to_the_next_token() -> None:
    text = [7 * i % 23 for i in range(40)]
    for end in range(16, 40):
        before, after = hashes_of(text[:end])[0], hashes_of(text[: end + 1])[0]
        assert roll_hash(before, text[end - 16], text[end]) == after


def test_keys_of_similar_texts_spread_evenly() -> None:
    """Chi-square over the buckets of a table, for n-grams that differ in one small token."""
    rng = random.Random(3)
    contexts = [[a, b, rng.randrange(4)] for a in range(128) for b in range(128)]
    keys = [hashes_of(context)[0] for context in contexts]
    counts = np.bincount([key >> 56 for key in keys], minlength=256)
    expected = len(keys) / 256
    # 255 degrees of freedom: mean 255, deviation 22.6.
    assert ((counts - expected) ** 2 / expected).sum() < 255 + 5 * 22.6
