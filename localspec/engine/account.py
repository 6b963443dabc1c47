"""The statistics of one request: its rounds, its times, and what its drafts have saved."""

from __future__ import annotations

import time

from localspec.protocol.options import GRAMMAR
from localspec.protocol.requests import ProposerStats, Stats
from localspec.speculation.proposer import Draft, Savings

NOISE = 0.02
"""share of a round's time that says nothing of drafts: on a busy machine plain rounds differ by more"""
WIDTH_GAIN = 0.2
"""share of a round's width that goes into the usual width of a request's rounds"""


class Account:
    """Counts a request's rounds and times from its submission on; :meth:`close` completes ``stats``."""

    def __init__(self, stats: Stats, *, reproducible: bool) -> None:
        self.stats, self._reproducible = stats, reproducible
        self.savings = Savings()
        self.width = 1.0
        """tokens that its rounds usually feed"""
        self._emitted = 0
        self._saved = self._noise = 0.0
        self._submitted = self.first = self.last = time.perf_counter()
        """times of the first and of the last token"""
        self.admitted: float | None = None
        """time at which the request got a slot for the first time"""

    def count_round(self, draft: Draft, accepted: int, emitted: int, seconds: float) -> None:
        """Add one round; ``seconds`` is the time spent proposing."""
        stats, k = self.stats, len(draft.tokens)
        self.width += WIDTH_GAIN * (k + 1 - self.width)
        self._emitted += emitted
        stats.rounds += 1
        stats.drafted += k
        stats.accepted += accepted
        stats.k_histogram[k] = stats.k_histogram.get(k, 0) + 1
        choice = draft.source if k else draft.reason
        stats.choices[choice] = stats.choices.get(choice, 0) + 1
        share = stats.proposers.setdefault(draft.source, ProposerStats())
        share.drafted += k
        share.accepted += accepted
        share.seconds += seconds

    def count_forced(self, tokens: int) -> None:
        """Add tokens that the grammar forced: no draft was verified for them."""
        share = self.stats.proposers.setdefault(GRAMMAR.name, ProposerStats())
        share.drafted += tokens
        share.accepted += tokens

    def count_time(
        self, won_s: float, forward_s: float, plain_s: float, spent_s: float, noise_s: float
    ) -> None:
        """Count a round that took ``spent_s``. Its forward usually takes ``forward_s``, this time ``noise_s``
        more or less; its draft saves ``won_s`` of forwards, and plain decoding would have taken ``plain_s``
        for the tokens it gave."""
        won, spent = self.savings
        self.savings = Savings(won + won_s, spent + forward_s)
        self._saved += plain_s - spent_s
        self._noise += noise_s + NOISE * spent_s

    def close(self, n: int, *, priced: bool) -> Stats:
        """Return the statistics of an answer of ``n`` tokens; ``priced``: a plain step's cost is known."""
        stats = self.stats
        is_clear = priced and stats.rounds and abs(self._saved) >= self._noise
        stats.time_saved_s = self._saved if is_clear else None
        stats.acceptance_rate = stats.accepted / stats.drafted if stats.drafted else None
        if self._reproducible:
            stats.exactness = "near-ties" if stats.rounded_tokens else "exact"
        stats.tokens_per_round = self._emitted / stats.rounds if stats.rounds else None
        until = time.perf_counter() if self.admitted is None else self.admitted
        stats.queued_s = until - self._submitted
        if n:
            stats.ttft_s = self.first - self._submitted
        if n > 1 and self.last > self.first:
            stats.decode_tokens_per_s = (n - 1) / (self.last - self.first)
        if not stats.drafted and stats.speculation_off_reason is None and stats.choices:
            stats.speculation_off_reason = max(stats.choices, key=lambda reason: stats.choices[reason])
        return stats
