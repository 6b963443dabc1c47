"""Hashes of n-grams, and from a text to its n-grams: all of them, once; none of what touches a secret."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.memory.ngrams import ORDERS, STEP, hashes_in, hashes_of, roll_hash, steps
from tests.memory.tables import no_piece, words

Gram = tuple[int, int, int]
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


def stepped(text: Sequence[int], piece: Callable[[int], bytes] = no_piece, *, earlier: int = 0) -> list[Gram]:
    """(order, hash, token) of all n-grams, as the steps give them."""
    return [
        (each.order, value, token)
        for grams in steps(text, piece, earlier=earlier)
        for each in grams
        for value, token in zip(each.hashes.tolist(), each.tokens.tolist(), strict=True)
    ]


def naive(text: Sequence[int]) -> list[Gram]:
    return [
        (n, hashes_of(text[:at], (n,))[0], text[at]) for at in range(len(text)) for n in ORDERS if n <= at
    ]


@given(st.lists(st.integers(0, 2**24 - 1), max_size=3 * STEP))
def test_the_steps_give_every_ngram_once(text: list[int]) -> None:
    assert sorted(stepped(text)) == sorted(naive(text))


@pytest.mark.parametrize("length", [STEP - 1, STEP, STEP + 1, STEP + ORDERS[0], 5 * STEP + 3])
def test_nothing_is_lost_on_the_seams(length: int) -> None:
    text = [(i * i * 31 + i) % 50_000 for i in range(length)]
    assert sorted(stepped(text)) == sorted(naive(text))


def test_a_secret_parts_the_text_in_two() -> None:
    before, after = b"some words before it, as there often are ", b" and as many words that come after it"
    text = before + b"AKIA" + b"IOSFODNN7EXAMPLE" + after
    found = stepped(list(text), lambda token: bytes([token]))
    assert sorted(found) == sorted(naive(before) + naive(after))


def test_tokens_without_text_are_learned_like_others() -> None:
    """Such as those that begin a turn of a chat."""
    text = list(range(30))
    assert len(stepped(text, lambda token: b"" if token % 2 else b"x")) == len(naive(text))


@pytest.mark.parametrize("earlier", [ORDERS[0] + 1, 100, 200])
def test_of_earlier_text_only_the_context_of_the_new_is_learnt(earlier: int) -> None:
    text = [(i * i * 31 + i) % 50_000 for i in range(200)]
    found, wanted = stepped(text, earlier=earlier), naive(text[max(0, earlier - ORDERS[0]) :])
    assert sorted(found) == sorted(wanted) and len(found) < len(naive(text))


def test_a_secret_that_begins_in_earlier_text_is_one() -> None:
    text = b"as it was before: password='hunter2 is not it' and then more of the usual words"
    start, end = text.index(b"hunter2"), text.index(b"' and")
    for earlier in range(start, end):
        found = stepped(list(text), lambda token: bytes([token]), earlier=earlier)
        assert sorted(found) == sorted(naive(text[earlier - ORDERS[0] : start]) + naive(text[end:]))
