"""Exactness: which rows and cells equal, to the bit, those of plain decoding.

Plain decoding reads the prompt in pieces of ``prefill_chunk`` tokens, then one token at a time, alone; where
the backend is ``fast_alone``, ``strict`` requests have another plain decoding than the others. A
forward of several tokens may round differently, so that the two best tokens of a near-tie can swap, and the
cells that it wrote move later rows. Up to some width most backends round as for one token
(:mod:`localspec.backends.rounding`).

``Sequence.exact`` counts the leading cells that plain decoding would have written, ``canonical`` those among
them of whole pieces, which any prompt that begins with these tokens has. A ``strict`` request plays only
rounds whose rows are equal, and takes over only canonical cells. Any other request drafts at full width and
takes over all cells; its statistics count the tokens that were not chosen from equal rows over exact cells.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import Protocol

from localspec.backends.base import ANY_WIDTH, Backend, Capabilities, Span
from localspec.backends.rounding import WIDTHS
from localspec.engine.sequence import Sequence
from localspec.speculation.draft import shared_length


class Holder(Protocol):
    """A holder of cells: a running request, or the cache of an ended one."""

    slot: int
    tokens: list[int]
    source: str

    @property
    def canonical(self) -> int: ...


def width_of(capabilities: Capabilities, spans: Seq[Span]) -> int:
    """Return the number of tokens that a forward computes, padding included."""
    if len(spans) == 1:
        return len(spans[0].tokens)
    widths = [len(span.tokens) for span in spans]
    return max(widths) * len(widths) if capabilities.batches else sum(widths)


def keeps_rows(capabilities: Capabilities, width: int, sequences: int = 1, *, strict: bool) -> bool:
    """Return True if the rows of a forward equal those of 1-wide forwards of each sequence alone, for spans
    that are exact if ``strict``."""
    widest = 1 if capabilities.fast_alone and not strict else capabilities.exact_width
    return width <= widest and (sequences == 1 or capabilities.exact_batches)


def widest_round(target: Backend, sequence: Sequence) -> int:
    """Return the most tokens that a round of the sequence may feed: those of equal rows if it is strict, or
    if that costs it next to nothing, because all widths that were tried have equal rows."""
    widest, settings = target.capabilities.exact_width, sequence.settings
    return widest if settings.strict or settings.reproducible and widest >= WIDTHS[-1] else ANY_WIDTH


def usable(holder: Holder, sequence: Sequence, most: int = ANY_WIDTH) -> int:
    """Return the number of the sequence's tokens that can be taken over, at most ``most``.

    The last token is always fed: its row gives the answer's first one. A strict request takes only cells
    that it would have written itself.
    """
    shared = min(shared_length(holder.tokens, sequence.tokens[:-1]), most)
    return canonical_cells(holder, shared, sequence) if sequence.settings.strict else shared


def canonical_cells(holder: Holder, length: int, sequence: Sequence) -> int:
    """Return how many of the first ``length`` cells are those of whole pieces of the sequence's prompt."""
    return min(length, holder.canonical) // sequence.chunk * sequence.chunk
