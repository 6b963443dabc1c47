"""The proposer by the n-grams of the text itself: what followed the newest tokens before.

Prompt lookup copies what followed the last occurrence of the newest tokens (Saxena, "Prompt Lookup Decoding",
2023, https://github.com/apoorvumang/prompt-lookup-decoding); here with an index that grows with the text, so
that a round costs the same at any length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from localspec.speculation.proposer import NOTHING, Ask, Draft, Proposer

MAX_MATCH = 32
"""the most tokens of a match that are counted"""
CANDIDATES = 8
"""number of occurrences, newest first, that are compared for the longest match"""
EVIDENCE = (1, 1, 1, 2, 3, 4, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7, *[8] * 8, *[9] * 8, 10)
"""evidence of the token after a match, by the length of the match"""


class Match(NamedTuple):
    """An earlier occurrence of the newest ``length`` tokens; it ends at ``end``. Length 0: there is none."""

    end: int
    length: int

    def evidence(self, tokens: int) -> tuple[int, ...]:
        """The evidence of each drafted token: every token drafted makes the match longer by one."""
        return tuple(EVIDENCE[min(self.length + i, MAX_MATCH)] for i in range(tokens))


NO_MATCH = Match(0, 0)


class NgramIndex:
    """The ends of all occurrences of the n-grams of a growing text, of n_min and of n_max tokens: with those
    between it took three times as long for 30,000 tokens, and found no more that was right."""

    def __init__(self, n_min: int, n_max: int) -> None:
        self._orders = sorted({n_min, n_max}, reverse=True)
        self._newest: dict[int, dict[tuple[int, ...], int]] = {n: {} for n in self._orders}
        self._older: dict[int, dict[int, int]] = {n: {} for n in self._orders}
        """by n: from an occurrence's end to that of the occurrence before it"""
        self._indexed = 0

    def extend(self, text: Sequence[int]) -> None:
        """Index the new tokens of ``text``, except the last, which no token follows yet."""
        for end in range(self._indexed + 1, len(text)):
            for n in self._orders:
                if n <= end:
                    gram, newest = tuple(text[end - n : end]), self._newest[n]
                    before = newest.get(gram)
                    if before is not None:
                        self._older[n][end] = before
                    newest[gram] = end
        self._indexed = max(self._indexed, len(text) - 1)

    def find(self, text: Sequence[int]) -> Match:
        """Return the longest match of the newest tokens, the newest of equally long ones."""
        for n in self._orders:
            if n < len(text):
                end = self._newest[n].get(tuple(text[-n:]))
                if end is not None:
                    return self._longest(text, end, n)
        return NO_MATCH

    def _longest(self, text: Sequence[int], end: int, n: int) -> Match:
        best, older = Match(end, _match_length(text, end, n)), self._older[n]
        for _ in range(CANDIDATES - 1):
            before = older.get(end)
            if before is None or best.length == MAX_MATCH:
                break
            end = before
            length = _match_length(text, end, n)
            if length > best.length:
                best = Match(end, length)
        return best


def _match_length(text: Sequence[int], end: int, known: int) -> int:
    """The number of tokens before ``end`` that equal the last ones of ``text``; ``known`` of them do."""
    n = known
    while n < MAX_MATCH and n < end and text[end - n - 1] == text[-n - 1]:
        n += 1
    return n


def copy_from(text: Sequence[int], start: int, k: int) -> tuple[int, ...]:
    """Copy ``k`` tokens from ``start`` on; past the end of ``text`` the copy reads itself, as in LZ77."""
    period = len(text) - start
    return tuple(text[start + i % period] for i in range(k))


class PromptLookup(Proposer):
    """Copies from the request's own text, with an :class:`NgramIndex` per request; takes microseconds a
    round, independent of the context's length."""

    name = "prompt-lookup"
    prior = (0.1, 0.55, 0.62, 0.76, 0.8, 0.8, 0.9, 0.92, 0.95, 0.97, 0.98)

    def __init__(self, *, n_min: int = 2, n_max: int = 5) -> None:
        self._n_min, self._n_max = n_min, n_max
        self._indexes: dict[int, NgramIndex] = {}

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [self._propose(ask) for ask in asks]

    def _propose(self, ask: Ask) -> Draft:
        index = self._indexes.get(ask.request)
        if index is None:
            index = self._indexes[ask.request] = NgramIndex(self._n_min, self._n_max)
        index.extend(ask.context)
        match = index.find(ask.context)
        if not match.length or not ask.k:
            return NOTHING
        tokens = copy_from(ask.context, match.end, ask.k)
        return Draft(tokens, self.name, evidence=match.evidence(len(tokens)))

    def stop(self, request: int) -> None:
        self._indexes.pop(request, None)
