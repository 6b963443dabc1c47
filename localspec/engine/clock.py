"""The times of one round: what its forward cost, and what it saved each request."""

from __future__ import annotations

import time
from collections.abc import Sequence as Seq
from typing import NamedTuple

from localspec.engine.events import RoundPlayed
from localspec.engine.sequence import Sequence
from localspec.speculation.costs import CostCurve
from localspec.speculation.draft import Draft


class Played(NamedTuple):
    """What one sequence did in a round: it held ``before`` tokens, ``emitted`` came out, and ``redone``
    narrow forwards decided near-ties again."""

    sequence: Sequence
    draft: Draft
    accepted: int
    before: int
    emitted: int
    redone: int


class RoundClock:
    """Started with the round; teaches ``costs`` what the forward took."""

    def __init__(self, costs: CostCurve) -> None:
        self._costs = costs
        self._started = self._proposed = self._forwarded = time.perf_counter()
        self._width = 0
        self._choosing = 0.0
        """seconds that choosing a token from one row took"""

    def proposed(self) -> None:
        """All drafts are there."""
        self._proposed = time.perf_counter()

    def forwarded(self, width: int) -> None:
        """The forward over ``width`` tokens has been computed."""
        self._forwarded = time.perf_counter()
        self._width = width

    def judged(self, rows: int) -> None:
        """The tokens of ``rows`` rows have been chosen."""
        self._choosing = (time.perf_counter() - self._forwarded) / rows

    def ended(self, played: Seq[Played]) -> list[RoundPlayed]:
        """The round is over: account for it; a record for each sequence."""
        context = max(p.before for p in played)
        if len(played) == 1:
            # A round of several requests says little about the widths of one.
            self._costs.observe(self._width, context, self._forwarded - self._proposed)
        # Everybody waits for the whole round; without drafts it would have given each one token.
        plain, narrow = self._costs.seconds(len(played), context), self._costs.seconds(1, context)
        # As it usually costs: a forward that something else held up is nobody's loss.
        forward = self._costs.seconds(self._width, context) + narrow * sum(p.redone for p in played)
        spent = paid = time.perf_counter() - self._started
        if not any(p.draft.tokens for p in played):
            # That was plain decoding, however fast the machine is just now: what is beside it is the loss.
            paid += plain - (self._forwarded - self._proposed)
        # Plain decoding chooses as many tokens, each from a row: that time is neither won nor lost.
        choosing = len(played) * self._choosing
        for p in played:
            p.sequence.count_time(p.emitted * plain, forward, paid - p.emitted * choosing)
        return [self._record(p, spent) for p in played]

    def _record(self, p: Played, spent: float) -> RoundPlayed:
        return RoundPlayed(
            request=p.sequence.id,
            round=p.sequence.stats.rounds,
            proposer=p.draft.source,
            k=len(p.draft.tokens),
            proposed=p.draft.tokens,
            chosen=tuple(p.sequence.tokens[p.before :]),
            accepted=p.accepted,
            emitted=p.emitted,
            ms=1000 * spent,
            propose_ms=1000 * (self._proposed - self._started),
            forward_ms=1000 * (self._forwarded - self._proposed),
            width=self._width,
        )
