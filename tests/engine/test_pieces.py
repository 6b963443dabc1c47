"""The pieces of a prompt: what another prompt left is taken over only where it is the same to the bit."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from localspec.backends.base import ANY_WIDTH, Capabilities
from localspec.backends.rounding import SHORT_PIECE, TILE
from localspec.engine.pieces import Pieces

UNKNOWN = Capabilities(
    n_ctx=4096, max_sequences=1, max_batch=4096, exact_piece=1, even_short=False, even_long=False
)
ROWS_BY_EIGHT = replace(UNKNOWN, even_short=True, even_long=True)
ROW_BY_ROW = replace(ROWS_BY_EIGHT, exact_piece=SHORT_PIECE)
KINDS = [
    UNKNOWN,
    replace(UNKNOWN, even_long=True),
    replace(UNKNOWN, even_short=True),
    ROWS_BY_EIGHT,
    ROW_BY_ROW,
]
CHUNKS = (2, 4, 16, 32, 60, 100, 256)

HEADLESS = 32

Cell = tuple[object, ...]


def cells(capabilities: Capabilities, start: int, end: int) -> list[Cell]:
    """Return a label for each cell that a forward over these tokens writes; equal labels mean equal bits.

    The model rounds as its ``capabilities`` state and no better: cells of widths that are not alike have
    labels of their own.
    """
    width = end - start
    if width < TILE:
        alike = capabilities.exact_piece >= SHORT_PIECE or (capabilities.even_short and width % 8 == 0)
    else:
        alike = capabilities.even_long and width % TILE == 0
    return [("few" if width < TILE else "many",) if alike else (width, i) for i in range(width)]


def written(capabilities: Capabilities, pieces: Pieces, length: int, start: int = 0) -> list[Cell]:
    """Return the labels of the cells that reading a prompt from ``start`` on writes.

    As on MLX, the row of a last piece of more than HEADLESS tokens is computed in a forward of its own.
    """
    found: list[Cell] = []
    for at, to in pieces.of(start, length):
        apart = to == length and to - at > HEADLESS
        found += cells(capabilities, at, to - apart) + apart * cells(capabilities, 0, 1)
    return found


@given(
    capabilities=st.sampled_from(KINDS),
    chunk=st.sampled_from(CHUNKS),
    length=st.integers(1, 900),
    other=st.integers(1, 900),
    answer=st.integers(0, 200),
    share=st.floats(0, 1),
)
@example(capabilities=ROWS_BY_EIGHT, chunk=256, length=330, other=288, answer=0, share=1.0)
@example(capabilities=UNKNOWN, chunk=256, length=330, other=224, answer=0, share=1.0)
def test_what_is_taken_over_is_what_the_prompt_itself_writes(
    capabilities: Capabilities, chunk: int, length: int, other: int, answer: int, share: float
) -> None:
    pieces = Pieces(chunk, capabilities)
    left = written(capabilities, pieces, other) + answer * cells(capabilities, 0, 1)
    exact = int(share * min(length - 1, len(left)))
    taken = pieces.shared(length, other, exact)
    assert taken <= exact
    assert left[:taken] + written(capabilities, pieces, length, taken) == written(
        capabilities, pieces, length
    )


@given(st.sampled_from(KINDS), st.sampled_from(CHUNKS), st.integers(1, 3000))
def test_pieces_follow_each_other_and_none_is_too_long(
    capabilities: Capabilities, chunk: int, length: int
) -> None:
    found = list(Pieces(chunk, capabilities).of(0, length))
    assert (found[0][0], found[-1][1]) == (0, length)
    assert all(end == start for (_, end), (start, _) in pairwise(found))
    assert all(start < end <= start + chunk for start, end in found)


@given(st.sampled_from(KINDS), st.sampled_from(CHUNKS), st.integers(1, 900), st.integers(0, 900))
def test_a_lasting_cut_is_one_of_every_longer_prompt(
    capabilities: Capabilities, chunk: int, length: int, more: int
) -> None:
    pieces = Pieces(chunk, capabilities)
    lasting = pieces.lasting(length)
    assert pieces.shared(length + more, length, lasting) == lasting


@given(st.integers(1, 3000), st.sampled_from((32, 256)))
def test_what_is_read_does_not_depend_on_what_was_measured(length: int, chunk: int) -> None:
    """A model that rounds in the best way, before it was measured and after."""
    before, after = (written(ROW_BY_ROW, Pieces(chunk, kind), length) for kind in (UNKNOWN, ROW_BY_ROW))
    assert before == after


@pytest.mark.parametrize(
    ("capabilities", "length", "other", "taken"),
    [
        (ROW_BY_ROW, 138, 138, 137),
        (ROW_BY_ROW, 618, 618, 617),
        (ROW_BY_ROW, 81, 23, 23),
        (ROW_BY_ROW, 400, 224, 224),
        (ROW_BY_ROW, 10_300, 10_000, 9952),
        (ROWS_BY_EIGHT, 138, 138, 136),
        (ROWS_BY_EIGHT, 618, 618, 616),
        (ROWS_BY_EIGHT, 81, 23, 16),
        (ROWS_BY_EIGHT, 10_300, 10_000, 9952),
        (ROWS_BY_EIGHT, 330, 288, 224),
        (ROWS_BY_EIGHT, 330, 289, 288),
        (UNKNOWN, 138, 138, 136),
        (UNKNOWN, 618, 618, 616),
        (UNKNOWN, 10_300, 10_000, 9952 - (9952 - 224) % 256),
    ],
)
def test_how_much_is_taken_over(capabilities: Capabilities, length: int, other: int, taken: int) -> None:
    pieces = Pieces(256, capabilities)
    assert pieces.shared(length, other, min(length - 1, other)) == taken


@pytest.mark.parametrize(("length", "most"), [(100, 3), (600, 8), (4000, 22)])
def test_few_forwards_are_added(length: int, most: int) -> None:
    assert len(list(Pieces(256, UNKNOWN).of(0, length))) <= most


def test_where_all_pieces_are_alike_they_are_as_long_as_may_be() -> None:
    pieces = Pieces(256, replace(UNKNOWN, exact_piece=ANY_WIDTH))
    assert list(pieces.of(100, 600)) == [(100, 256), (256, 512), (512, 600)]
    assert pieces.shared(600, 20, 577) == 577
