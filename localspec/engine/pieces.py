"""The pieces that a prompt is read in: they depend on its length alone, and shrink towards its end.

A forward of few tokens and one of many round differently, so a strict text depends on the pieces that its
prompt was read in. They are the same for every prompt of one length, and all but the last few are the same
for every longer prompt:

- the head, 224 tokens in short pieces of 56, for short chats, which grow by a few tokens;
- the body, in pieces of ``prefill_chunk`` tokens and one of a multiple of 64 at its end;
- the tail of up to 64 tokens, as short pieces of a multiple of 8 and a rest of one to 8.

Only the rest gives a row, and its cells are never taken over by a longer prompt: a backend may compute the
row of a wide piece in a forward of its own, which gives other cells than the same piece without a row.

Most kernels compute all short pieces alike, and all long ones: ggml's CPU kernels compute forwards of fewer
than 64 tokens row by row and others in tiles, and K-quants take rows by fours and eights
(:mod:`localspec.backends.rounding` measures that). In that case, cells are taken over in steps of 8 and 64
tokens, or to the token, and pieces begin wherever the cache ends, with the width of their kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from localspec.backends.base import ANY_WIDTH, Capabilities
from localspec.backends.rounding import LONGEST_PROBED, SHORT_PIECE, STEP, TILE

HEAD_PIECES = 4


class _Run(NamedTuple):
    """Cells ``start`` to ``end``, read in pieces of ``piece`` tokens. In two prompts with the same beginning
    they are equal up to a multiple of ``unit`` tokens from ``start`` on."""

    start: int
    end: int
    piece: int
    unit: int


class Pieces:
    """The pieces of prompts on one model; ``chunk`` is the largest."""

    def __init__(self, chunk: int, capabilities: Capabilities) -> None:
        self.chunk = chunk
        self._any = capabilities.exact_piece == ANY_WIDTH
        self._any_short = capabilities.exact_piece >= SHORT_PIECE
        short = min(SHORT_PIECE, chunk)
        self._step = min(STEP, short)
        self._short = short - short % self._step
        self._wide = chunk - chunk % TILE
        self._head = HEAD_PIECES * self._short if self._wide else ANY_WIDTH
        long_alike = capabilities.even_long and self._wide <= LONGEST_PROBED
        self._short_unit = 1 if self._any_short else self._step if capabilities.even_short else self._short
        self._long_unit = TILE if long_alike else self._wide

    def of(self, start: int, length: int) -> Iterator[tuple[int, int]]:
        """Yield (from, to) of the remaining pieces, from ``start`` on, of a prompt of ``length`` tokens."""
        while start < length:
            end = self._end(start, length)
            yield start, end
            start = end

    def _end(self, start: int, length: int) -> int:
        if self._any:
            return min(start - start % self.chunk + self.chunk, length)
        run = next(run for run in self._runs(length) if start < run.end)
        # A unit below the piece means that all pieces of this run give equal cells: the grid does not matter.
        at = start if run.unit < run.piece else start - (start - run.start) % run.piece
        return min(at + run.piece, run.end)

    def shared(self, length: int, other: int, exact: int) -> int:
        """Return the number of leading cells of two prompts of equal tokens that are equal to the bit.

        One prompt has ``length`` tokens; of the other, ``other`` tokens were read in pieces, and those behind
        them decoded one by one. At most ``exact``.
        """
        if self._any:
            return exact
        at = 0
        for mine, its in zip(self._runs(length), self._runs(other, exact), strict=True):
            if mine.end == its.end <= exact:
                at = mine.end
                continue
            return at + (min(mine.end, its.end, exact) - at) // mine.unit * mine.unit
        return at

    def lasting(self, length: int) -> int:
        """Return the last border of pieces that every longer prompt has, too."""
        head, body, _, _ = self._runs(length)
        run = body if body.end > body.start else head
        return run.start + (run.end - run.start) // run.unit * run.unit

    def _runs(self, length: int, decoded: int = 0) -> tuple[_Run, _Run, _Run, _Run]:
        """Return head, body, tail and rest. If short pieces are alike down to one token, the tail includes
        the rest and the cells up to ``decoded``."""
        end, whole, body = length, length - 1, 0
        if whole >= self._head:
            body = self._head + (whole - self._head) // TILE * TILE
        short_end = whole - (whole - body) % self._step
        if self._any_short:
            short_end = end = max(length, decoded)
        head_end = min(self._head, short_end)
        body_end = max(head_end, body)
        return (
            _Run(0, head_end, self._short, self._short_unit),
            _Run(head_end, body_end, self._wide, self._long_unit),
            _Run(body_end, short_end, self._short, self._short_unit),
            _Run(short_end, end, self._step, self._step),
        )
