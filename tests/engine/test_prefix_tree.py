"""The tree finds what a comparison with every list would find."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.engine.prefix_tree import PrefixTree
from localspec.speculation.draft import shared_length

words = st.lists(st.integers(0, 2), max_size=8)


def tree_of(lists: list[list[int]]) -> PrefixTree[int]:
    tree: PrefixTree[int] = PrefixTree()
    for number, tokens in enumerate(lists):
        tree.add(tokens, number)
    return tree


@given(st.lists(words, max_size=12), words)
def test_all_values_come_the_longest_match_first(lists: list[list[int]], prompt: list[int]) -> None:
    tree = tree_of(lists)
    found = list(tree.matches(prompt))
    assert sorted(found) == sorted((shared_length(each, prompt), i) for i, each in enumerate(lists))
    assert [shared for shared, _ in found] == sorted((shared for shared, _ in found), reverse=True)
    assert len(tree) == len(lists) and sorted(tree) == list(range(len(lists)))


@given(st.lists(words, max_size=12), st.randoms(use_true_random=False), words)
def test_what_was_removed_is_not_found(
    lists: list[list[int]], chance: random.Random, prompt: list[int]
) -> None:
    tree = tree_of(lists)
    gone = set(chance.sample(range(len(lists)), len(lists) // 2))
    for number in gone:
        tree.remove(lists[number], number)
    left = {number for number in range(len(lists)) if number not in gone}
    assert set(tree) == {number for _, number in tree.matches(prompt)} == left
    for number in left:
        tree.remove(lists[number], number)
    assert len(tree) == 0 and not list(tree.matches(prompt))


@given(words, words)
def test_the_shared_length_is_that_of_a_comparison_token_by_token(one: list[int], other: list[int]) -> None:
    n = shared_length(one, other)
    assert one[:n] == other[:n]
    assert n == min(len(one), len(other)) or one[n] != other[n]


def test_what_was_never_added_cannot_be_removed() -> None:
    tree = tree_of([[1, 2, 3]])
    with pytest.raises(ValueError):
        tree.remove([1, 2, 3], 7)
    with pytest.raises(KeyError):
        tree.remove([2], 0)
    with pytest.raises((KeyError, ValueError)):
        tree.remove([1, 2], 0)
    assert list(tree) == [0]
