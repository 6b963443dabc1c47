"""The proposer that chooses among the others."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.speculation.draft import NOTHING, Ask, Draft
from localspec.speculation.proposer import Proposer


class Auto(Proposer):
    """Asks its members in order; the first that offers something is taken."""

    name = "auto"

    def __init__(self, members: Sequence[Proposer]) -> None:
        self._members = members

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        drafts = [NOTHING for _ in asks]
        for member in self._members:
            empty = [i for i, draft in enumerate(drafts) if not draft.tokens]
            if not empty:
                break
            for i, draft in zip(empty, member.propose([asks[i] for i in empty]), strict=True):
                drafts[i] = draft
        return drafts

    def observe(self, request: int, draft: Draft, accepted: int) -> None:
        for member in self._members:
            if member.name == draft.source:
                member.observe(request, draft, accepted)

    def stop(self, request: int) -> None:
        for member in self._members:
            member.stop(request)
