"""Prompt lookup: copy what followed the last occurrence of the newest tokens.

Saxena, "Prompt Lookup Decoding" (2023), https://github.com/apoorvumang/prompt-lookup-decoding;
here with an index that grows with the text, so that a round costs the same at any length.
"""

from __future__ import annotations

from collections.abc import Sequence

from localspec.speculation.draft import NOTHING, Ask, Draft
from localspec.speculation.proposer import Proposer

MAX_MATCH = 32
"""how far back a match is measured, in tokens"""
EVIDENCE = (0, 0, 0, 1, 2, 3, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, *[7] * 8, *[8] * 8, 9)
"""by the length of the match, what is to be expected of the token after it"""


def evidence_of(match_length: int, tokens: int) -> tuple[int, ...]:
    """A number for each drafted token: every right one makes the match longer by one."""
    return tuple([EVIDENCE[min(match_length + i, MAX_MATCH)] for i in range(tokens)])


class NgramIndex:
    """For every n-gram of a growing text, n in ``n_min … n_max``: where its newest occurrence ends.

    What stands before ``start`` is not searched.
    """

    def __init__(self, n_min: int, n_max: int, start: int = 0) -> None:
        self._orders = range(n_max, n_min - 1, -1)
        self._ends: dict[int, dict[tuple[int, ...], int]] = {n: {} for n in self._orders}
        self._start = self._indexed = start

    def extend(self, text: Sequence[int]) -> None:
        """Take in what is new in ``text``, all but its last token: nothing has followed that yet."""
        for end in range(self._indexed + 1, len(text)):
            for n in self._orders:
                if n <= end - self._start:
                    self._ends[n][tuple(text[end - n : end])] = end
        self._indexed = max(self._indexed, len(text) - 1)

    def find(self, text: Sequence[int]) -> tuple[int, int]:
        """(where the newest occurrence of the longest known suffix ends, its length); length 0: none."""
        for n in self._orders:
            if n < len(text):
                end = self._ends[n].get(tuple(text[-n:]))
                if end is not None:
                    return end, _match_length(text, end, n)
        return 0, 0


def _match_length(text: Sequence[int], end: int, known: int) -> int:
    """How many tokens before ``end`` equal the last ones of ``text``; the first ``known`` do."""
    n = known
    while n < MAX_MATCH and n < end and text[end - n - 1] == text[-n - 1]:
        n += 1
    return n


def copy_from(text: Sequence[int], start: int, k: int) -> tuple[int, ...]:
    """``k`` tokens from ``start`` on; past the end of ``text`` the copy reads itself, as LZ77 does."""
    period = len(text) - start
    return tuple(text[start + i % period] for i in range(k))


class PromptLookup(Proposer):
    """An :class:`NgramIndex` per request; microseconds a round, independent of the context's length.

    ``output_only`` searches the answer alone, not the prompt.
    """

    name = "prompt-lookup"
    prior = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.92, 0.94, 0.95)

    def __init__(self, *, n_min: int = 2, n_max: int = 5, output_only: bool = False) -> None:
        self._n_min, self._n_max = n_min, n_max
        self._output_only = output_only
        self._indexes: dict[int, NgramIndex] = {}

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [self._propose(ask) for ask in asks]

    def _propose(self, ask: Ask) -> Draft:
        index = self._indexes.get(ask.request)
        if index is None:
            start = len(ask.context) - ask.answered if self._output_only else 0
            index = self._indexes[ask.request] = NgramIndex(self._n_min, self._n_max, start)
        index.extend(ask.context)
        end, length = index.find(ask.context)
        if not length:
            return NOTHING
        tokens = copy_from(ask.context, end, ask.k)
        return Draft(tokens, self.name, match_length=length, evidence=evidence_of(length, len(tokens)))

    def stop(self, request: int) -> None:
        self._indexes.pop(request, None)
