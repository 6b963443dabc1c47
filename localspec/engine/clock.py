"""The times of one round: the cost of its forward, and the time saved for each request."""

from __future__ import annotations

import time
from collections.abc import Sequence as Seq
from typing import NamedTuple

from localspec.engine.sequence import Sequence
from localspec.protocol.events import Round
from localspec.speculation.costs import CostCurve
from localspec.speculation.draft import Draft


class Played(NamedTuple):
    """The round of one sequence: it had ``before`` tokens, and ``emitted`` were added."""

    sequence: Sequence
    draft: Draft
    accepted: int
    before: int
    emitted: int


class RoundClock:
    """Times one round, from its creation on; adds the time of the forward to ``costs``."""

    def __init__(self, costs: CostCurve) -> None:
        self._costs = costs
        self._started = self._proposed = self._forwarded = time.perf_counter()
        self._width = 0
        self._choosing = 0.0
        """seconds to choose a token from one row"""
        self._spent = 0.0
        """seconds of the whole round"""

    def proposed(self) -> None:
        """Note the time: all drafts are made."""
        self._proposed = time.perf_counter()

    def forwarded(self, width: int) -> None:
        """Note the time: the forward over ``width`` tokens has been computed."""
        self._forwarded = time.perf_counter()
        self._width = width

    def judged(self, rows: int) -> None:
        """Note the time: the tokens of ``rows`` rows have been chosen."""
        self._choosing = (time.perf_counter() - self._forwarded) / rows

    def ended(self, played: Seq[Played]) -> None:
        """Account for the round, which is over."""
        context, is_plain = 0, True
        for p in played:
            context, is_plain = max(context, p.before), is_plain and not p.draft.tokens
        if len(played) == 1:
            # A round of several requests says little about the cost of one's widths.
            self._costs.observe(self._width, context, self._forwarded - self._proposed)
        # Each request waits for the whole round; without drafts it would have given each one token.
        seconds = self._costs.at(context)
        plain = seconds(len(played))
        # At the usual cost: a forward that was held up by something else is not counted as a loss.
        forward = plain if self._width == len(played) else seconds(self._width)
        self._spent = paid = time.perf_counter() - self._started
        noise = abs(self._forwarded - self._proposed - forward)
        if is_plain:
            # The forward was plain decoding, at the machine's present speed: only the rest is a loss.
            paid += plain - (self._forwarded - self._proposed)
            noise = 0.0
        # Plain decoding would also choose a token from each row: that time is neither won nor lost.
        choosing = len(played) * self._choosing
        for p in played:
            p.sequence.account.count_time(p.emitted * plain, forward, paid - p.emitted * choosing, noise)

    def record(self, p: Played) -> Round:
        """Return the record of a sequence's round, which has ended."""
        return Round(
            round=p.sequence.stats.rounds,
            proposer=p.draft.source,
            k=len(p.draft.tokens),
            proposed=p.draft.tokens,
            chosen=tuple(p.sequence.tokens[p.before :]),
            accepted=p.accepted,
            emitted=p.emitted,
            ms=1000 * self._spent,
        )
