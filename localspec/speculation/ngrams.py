"""The proposers by n-grams: what followed the newest tokens before, in the text itself or in earlier texts.

Prompt lookup copies what followed the last occurrence of the newest tokens (Saxena, "Prompt Lookup Decoding",
2023, https://github.com/apoorvumang/prompt-lookup-decoding); here with an index that grows with the text, so
that a round costs the same at any length. Memory recall takes the tokens that followed them in the texts of
the n-gram memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

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
    """The ends of all occurrences of every n-gram of a growing text, n in ``n_min … n_max``."""

    def __init__(self, n_min: int, n_max: int) -> None:
        self._orders = range(n_max, n_min - 1, -1)
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


REACH = 32
"""tokens of context that are used; no table has longer n-grams"""
LEVELS = (*[0] * 3, *[1] * 2, *[2] * 4, 3)
"""an entry's part of the evidence by its score; a new entry has score 3"""


class Recalled(Protocol):
    """A table's continuation: ``token`` follows the last ``order`` tokens, by the entry ``slot``."""

    @property
    def token(self) -> int: ...
    @property
    def order(self) -> int: ...
    @property
    def score(self) -> int: ...
    @property
    def slot(self) -> int: ...


class Table(Protocol):
    """N-grams and the tokens that followed them."""

    def find(self, hashes: Sequence[int]) -> Recalled | None:
        """Return the best continuation of the longest n-gram in the table; None if it has none of them."""

    def credit(self, slot: int, token: int, *, accepted: bool) -> None:
        """Note that the entry was right, or was not."""


Hit = tuple[Table, Recalled]
"""the origin of a drafted token"""


class Keys(Protocol):
    """Hashes of contexts, by which tables are searched."""

    orders: Sequence[int]
    """the n of the n-grams, longest first"""

    def hashes_of(self, context: Sequence[int]) -> Sequence[int]:
        """Return the hashes of the last n tokens for every order, longest first."""

    def rolled(self, value: int, oldest: int, newest: int) -> int:
        """Return the longest order's hash one token further: without ``oldest``, with ``newest``."""


class MemoryRecall(Proposer):
    """Chains continuations from the tables of a request's workspace, its own first, then the user's.

    ``tables`` returns the tables of a workspace, in this order. Entries that were right are credited and
    wrong ones are debited, except for requests without ``remember``.
    """

    name = "memory"
    prior = (0.5, 0.5, 0.55, 0.6, 0.75, 0.75, 0.8, 0.8, 0.85, 0.85, 0.9, 0.9, 0.95, 0.95, 0.95, 0.97)

    def __init__(self, tables: Callable[[str | None], Sequence[Table]], keys: Keys) -> None:
        self._open, self._keys = tables, keys
        self._longest = keys.orders[0]
        self._ranks = {order: 4 * rank for rank, order in enumerate(sorted(keys.orders)[-4:])}
        self._tables: dict[int, Sequence[Table]] = {}
        self._hits: dict[int, list[Hit]] = {}

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [self._propose(ask) for ask in asks]

    def _propose(self, ask: Ask) -> Draft:
        tables = self._tables.get(ask.request)
        if tables is None:
            tables = self._tables[ask.request] = self._open(ask.workspace)
        if not tables:
            return NOTHING
        hits, evidence = self._chain(tables, ask)
        self._hits[ask.request] = hits if ask.remember else []
        if not hits:
            return NOTHING
        return Draft(tuple(found.token for _, found in hits), self.name, evidence=tuple(evidence))

    def _chain(self, tables: Sequence[Table], ask: Ask) -> tuple[list[Hit], list[int]]:
        """Return the origins of the drafted tokens, and their evidence."""
        context = ask.context[-REACH:]
        hits: list[Hit] = []
        evidence: list[int] = []
        hashes = self._keys.hashes_of(context)
        while len(hits) < ask.k:
            found, table = _find(tables, hashes)
            if found is None and len(hashes) == 1:
                # The longest order has no continuation: only now are the other orders hashed.
                hashes = self._keys.hashes_of(context)
                found, table = _find(tables, hashes[1:])
            if found is None:
                break
            known = self._ranks.get(found.order, 0) + LEVELS[min(found.score, len(LEVELS) - 1)]
            hits.append((table, found))
            evidence.append(known)
            if ask.gate is not None and not ask.gate.admits(known):
                break
            context.append(found.token)
            if found.order == self._longest:
                hashes = (self._keys.rolled(hashes[0], context[-self._longest - 1], found.token),)
            else:
                hashes = self._keys.hashes_of(context)
        return hits, evidence

    def observe(self, request: int, draft: Draft, accepted: int) -> None:
        hits = self._hits.pop(request, [])
        for i, (table, found) in enumerate(hits[: min(accepted + 1, len(draft.tokens))]):
            table.credit(found.slot, found.token, accepted=i < accepted)

    def stop(self, request: int) -> None:
        self._tables.pop(request, None)
        self._hits.pop(request, None)


def _find(tables: Sequence[Table], hashes: Sequence[int]) -> tuple[Recalled | None, Table]:
    """Return the continuation of the first table that has one, with that table."""
    for table in tables:
        found = table.find(hashes)
        if found is not None:
            return found, table
    return None, tables[0]
