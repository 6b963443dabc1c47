"""Totals since the daemon started, as JSON and as Prometheus text."""

from __future__ import annotations

from localspec.protocol.options import KINDS
from localspec.protocol.requests import Result

TOTALS = {
    "prompt_seconds_total": "time from the end of queueing to the first token",
    "timed_prompt_tokens_total": "prompt tokens that were read in prompt_seconds",
    "decode_seconds_total": "time from the first token of an answer to its last",
    "timed_tokens_total": "tokens that came in decode_seconds: all after the first",
    "longest_tokens": "most tokens of a prompt and its answer",
    "rounded_tokens_total": "tokens from rows that may be rounded otherwise",
    # A counter must not fall, and a gauge of the difference would have no rate.
    "time_saved_seconds_total": "decoding time saved by requests that were faster",
    "time_lost_seconds_total": "decoding time lost by requests that were slower",
    "accepted_chars_total": "characters of completions accepted",
    "worker_crashes_total": "workers that ended unexpectedly",
    "slow_clients_total": "clients dropped because they did not read",
    "connections_opened_total": "connections accepted",
    "connections": "connections open now",
}
"""meanings of the totals that start at zero: counters, whose names end in ``_total``, and gauges"""
LATER = {
    "requests_total": "requests answered, by method and ending",
    "tokens_total": "tokens by kind: prompt, cached, completion",
    "drafted_tokens_total": "tokens drafted, by proposer",
    "accepted_tokens_total": "drafted tokens that were accepted, by proposer",
    "proposing_seconds_total": "time spent drafting, by proposer",
    "rounds_total": "rounds, by proposer; other: those without a draft",
    "completions_total": "completions answered, by source of the answer",
    "suggestions_total": "feedback on completions, by event",
}
"""meanings of the totals that have no value, or none of a label, before the first"""
PROPOSERS = frozenset(kind.name for kind in KINDS)
PLAIN = "proposer is none"
"""the reason for no draft in rounds of plain decoding that was requested"""


class MetricsRegistry:
    """The totals; their labels are of closed sets, never a client's text."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, float]] = {name: {"": 0.0} for name in TOTALS}
        self._values |= {name: {} for name in LATER}

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a total, or to its part of these labels."""
        inner = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
        values, key = self._values[name], f"{{{inner}}}" if inner else ""
        values[key] = values.get(key, 0.0) + amount

    def count_result(self, result: Result) -> None:
        """Add one generation's tokens and statistics."""
        stats, answered = result.stats, result.completion_tokens
        self.add("tokens_total", result.prompt_tokens, kind="prompt")
        self.add("tokens_total", result.cached_tokens, kind="cached")
        self.add("tokens_total", answered, kind="completion")
        self.add("rounded_tokens_total", stats.rounded_tokens)
        for name, share in stats.proposers.items():
            self.add("drafted_tokens_total", share.drafted, proposer=name)
            self.add("accepted_tokens_total", share.accepted, proposer=name)
            self.add("proposing_seconds_total", share.seconds, proposer=name)
        for choice, rounds in stats.choices.items():
            self.add("rounds_total", rounds, choice=choice if choice in PROPOSERS else "other")
        saved = stats.time_saved_s
        # With proposer none all rounds are plain: the difference is noise of the clock.
        if saved is not None and not all(PLAIN in choice for choice in stats.choices):
            self.add("time_saved_seconds_total", max(saved, 0.0))
            self.add("time_lost_seconds_total", max(-saved, 0.0))
        longest = self._values["longest_tokens"]
        longest[""] = max(longest[""], float(result.prompt_tokens + answered))
        if stats.ttft_s is not None:
            # An answer without a token has no such time, so its prompt must not count in the rate.
            self.add("prompt_seconds_total", max(0.0, stats.ttft_s - stats.queued_s))
            self.add("timed_prompt_tokens_total", result.prompt_tokens - result.cached_tokens)
        if stats.decode_tokens_per_s:
            self.add("decode_seconds_total", (answered - 1) / stats.decode_tokens_per_s)
            self.add("timed_tokens_total", answered - 1)

    def totals(self) -> dict[str, float]:
        """Every sample, keyed as Prometheus writes it: ``localspec_tokens_total{kind="prompt"}``."""
        return {
            f"localspec_{name}{labels}": value
            for name, values in self._values.items()
            for labels, value in values.items()
        }

    def text(self) -> str:
        """Prometheus' text format."""
        lines = []
        for name, meaning in (TOTALS | LATER).items():
            full, kind = f"localspec_{name}", "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP {full} {meaning}", f"# TYPE {full} {kind}"]
            lines += [f"{full}{labels} {value}" for labels, value in self._values[name].items()]
        return "\n".join(lines) + "\n"
