"""The proposers of an engine by name, and what happens when one fails."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence as Seq
from operator import index
from typing import NamedTuple

from localspec.engine.sequence import Sequence
from localspec.errors import InvalidOptions
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.proposer import Proposer

FALLBACK = {
    "auto": "prompt-lookup",
    "draft": "prompt-lookup",
    "memory": "prompt-lookup",
    "prompt-lookup": "none",
}


class Offer(NamedTuple):
    """A draft and the seconds it took."""

    draft: Draft
    seconds: float


class Proposers:
    """Asks each sequence's proposer, all sequences of one proposer together."""

    def __init__(self, proposers: Seq[Proposer], *, vocabulary_size: int, rollback: int | None) -> None:
        self._by_name = {proposer.name: proposer for proposer in proposers}
        self._size = vocabulary_size
        self._rollback = rollback

    def check(self, name: str) -> None:
        """Raises :class:`InvalidOptions` for a proposer that this engine does not have."""
        if name not in self._by_name:
            remedy = "Load the model with --draft." if name == "draft" else None
            have = ", ".join(self._by_name)
            raise InvalidOptions(f"there is no proposer {name!r} here; there are: {have}", remedy)

    def propose(self, sequences: Seq[Sequence]) -> list[Offer]:
        """An offer for every sequence, cut to what is of use; a failing proposer is replaced at once."""
        offers: dict[int, Offer] = {}
        for name in dict.fromkeys(s.proposer for s in sequences):
            offers |= self._ask(name, [s for s in sequences if s.proposer == name])
        return [offers[s.id] for s in sequences]

    def _ask(self, name: str, sequences: Seq[Sequence]) -> dict[int, Offer]:
        asks = [s.ask(self._rollback) for s in sequences]
        started = time.perf_counter()
        try:
            drafts = self._by_name[name].propose(asks)
            clean = [self._clean(draft, ask.k) for draft, ask in zip(drafts, asks, strict=True)]
        except Exception as error:
            # Whatever a proposer raises, native code included, must cost speed only.
            to = FALLBACK.get(name, "none")
            for sequence in sequences:
                sequence.degrade(to, f"{type(error).__name__}: {error}")
            return self._ask(to, sequences)
        seconds = (time.perf_counter() - started) / len(sequences)
        return {s.id: Offer(draft, seconds) for s, draft in zip(sequences, clean, strict=True)}

    def _clean(self, draft: Draft, k: int) -> Draft:
        """At most ``k`` tokens, and none that the target does not have. Raises for what is no draft."""
        if draft.q is not None and len(draft.q) != len(draft.tokens):
            raise ValueError(f"{len(draft.tokens)} tokens with {len(draft.q)} distributions")
        wrong = next((i for i, t in enumerate(draft.tokens) if not 0 <= index(t) < self._size), k)
        cut = draft.cut(min(k, wrong))
        return cut if cut.tokens else NOTHING

    def observe(self, sequence: Sequence, draft: Draft, accepted: int) -> None:
        """Tell the proposer how its draft fared."""
        if not draft.tokens:
            return
        try:
            self._by_name[sequence.proposer].observe(sequence.id, draft, accepted)
        except Exception as error:
            # As in a proposal: it costs the request this proposer.
            sequence.degrade(FALLBACK.get(sequence.proposer, "none"), f"{type(error).__name__}: {error}")

    def stop(self, sequence: Sequence) -> None:
        """The request has ended. Nobody is spared: a degraded request had several proposers."""
        for proposer in self._by_name.values():
            # The request has its text; a proposer that cannot forget it is no reason to fail.
            with contextlib.suppress(Exception):
                proposer.stop(sequence.id)
