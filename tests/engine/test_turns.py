"""The number of a chat's oldest turns that are dropped, and the number of tokenizations it takes to find."""

from __future__ import annotations

from itertools import accumulate
from math import log2

from hypothesis import given
from hypothesis import strategies as st

from localspec.engine.turns import Counted, fewest_dropped

TURNS = st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 30)), min_size=1, max_size=300)
"""characters and tokens of each turn, in whatever relation"""


def left(values: list[int]) -> list[int]:
    """The sums of all but the first, all but the first two, and so on."""
    return list(accumulate(reversed(values)))[::-1]


def searched(turns: list[tuple[int, int]], room: int) -> tuple[int, Counted, list[int]]:
    sizes, counts = left([chars for chars, _ in turns]), left([tokens for _, tokens in turns])
    asked: list[int] = []

    def encode(n: int) -> Counted:
        asked.append(n)
        return Counted([n], counts[n])

    n, found = fewest_dropped(sizes, sizes[0] + 10, room, encode)
    return n, found, asked


@given(TURNS, st.integers(1, 1000))
def test_no_more_turns_are_dropped_than_must_be(turns: list[tuple[int, int]], room: int) -> None:
    n, found, asked = searched(turns, room)
    counts = left([tokens for _, tokens in turns])
    fitting = [n for n, count in enumerate(counts) if count <= room]
    assert n == (fitting[0] if fitting else len(counts) - 1)
    assert found == Counted([n], counts[n])
    assert len(asked) == len(set(asked)) <= 2 * log2(len(counts) + 1) + 2


def test_turns_that_are_alike_are_counted_a_few_times() -> None:
    _, _, asked = searched([(400, 101 + n % 7) for n in range(20_000)], 12_000)
    assert len(asked) <= 5
