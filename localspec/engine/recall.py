"""The proposer by the n-gram memory: what followed the newest tokens in earlier texts."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.memory.memory import Memory
from localspec.memory.table import NgramTable, Recall
from localspec.speculation.proposer import NOTHING, Ask, Draft, Proposer

REACH = 32
"""tokens of context that are used; no table has longer n-grams"""
LEVELS = (*[0] * 3, *[1] * 2, *[2] * 4, 3)
"""an entry's part of the evidence by its score; a new entry has score 3"""

Hit = tuple[NgramTable, Recall]
"""the origin of a drafted token"""


class MemoryRecall(Proposer):
    """Chains continuations from the tables of a request's workspace, its own first, then the user's. Entries
    that were right are credited and wrong ones are debited, except for requests without ``remember``."""

    name = "memory"
    prior = (0.5, 0.5, 0.55, 0.6, 0.75, 0.75, 0.8, 0.8, 0.85, 0.85, 0.9, 0.9, 0.95, 0.95, 0.95, 0.97)

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._longest = memory.orders[0]
        self._ranks = {order: 4 * rank for rank, order in enumerate(sorted(memory.orders)[-4:])}
        self._tables: dict[int, Sequence[NgramTable]] = {}
        self._hits: dict[int, list[Hit]] = {}

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [self._propose(ask) for ask in asks]

    def _propose(self, ask: Ask) -> Draft:
        tables = self._tables.get(ask.request)
        if tables is None:
            tables = self._tables[ask.request] = self._memory.tables(ask.workspace)
        if not tables:
            return NOTHING
        hits, evidence = self._chain(tables, ask)
        self._hits[ask.request] = hits if ask.remember else []
        if not hits:
            return NOTHING
        return Draft(tuple(found.token for _, found in hits), self.name, evidence=tuple(evidence))

    def _chain(self, tables: Sequence[NgramTable], ask: Ask) -> tuple[list[Hit], list[int]]:
        """Return the origins of the drafted tokens, and their evidence."""
        context = ask.context[-REACH:]
        hits: list[Hit] = []
        evidence: list[int] = []
        hashes = self._memory.hashes_of(context)
        while len(hits) < ask.k:
            found, table = _find(tables, hashes)
            if found is None and len(hashes) == 1:
                # The longest order has no continuation: only now are the other orders hashed.
                hashes = self._memory.hashes_of(context)
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
                hashes = (self._memory.roll_hash(hashes[0], context[-self._longest - 1], found.token),)
            else:
                hashes = self._memory.hashes_of(context)
        return hits, evidence

    def observe(self, request: int, draft: Draft, accepted: int) -> None:
        hits = self._hits.pop(request, [])
        for i, (table, found) in enumerate(hits[: min(accepted + 1, len(draft.tokens))]):
            table.credit(found.slot, found.token, accepted=i < accepted)

    def stop(self, request: int) -> None:
        self._tables.pop(request, None)
        self._hits.pop(request, None)


def _find(tables: Sequence[NgramTable], hashes: Sequence[int]) -> tuple[Recall | None, NgramTable]:
    """Return the continuation of the first table that has one, with that table."""
    for table in tables:
        found = table.find(hashes)
        if found is not None:
            return found, table
    return None, tables[0]
