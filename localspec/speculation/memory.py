"""The n-gram memory as a proposer: the tokens that followed the newest tokens in earlier texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from localspec.speculation.draft import NOTHING, Ask, Draft
from localspec.speculation.proposer import Proposer

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


class Hit(NamedTuple):
    """The origin of a drafted token."""

    table: Table
    slot: int
    token: int


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
        return Draft(tuple(hit.token for hit in hits), self.name, evidence=tuple(evidence))

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
            hits.append(Hit(table, found.slot, found.token))
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
        for i, hit in enumerate(hits[: min(accepted + 1, len(draft.tokens))]):
            hit.table.credit(hit.slot, hit.token, accepted=i < accepted)

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
