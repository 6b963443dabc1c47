"""Totals since the daemon started, as JSON and as Prometheus text."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest

from localspec.protocol.results import Result, Stats

disable_created_metrics()  # type: ignore[no-untyped-call]

BOUND_TOKENS = 64
"""an answer shorter than this says little about speed"""
NO_LOSS = f"smallest plain time / time taken of a request with {BOUND_TOKENS} tokens or more"
PROPOSERS = frozenset({"prompt-lookup", "memory", "draft"})
OFF = "off"
REASONS = {
    "nothing to offer": "nothing",
    "a plain round": "control",
    "was not worth": "not_worth",
    "near-ties would cost more": "near_ties",
    "nobody was asked": "resting",
    "is not sure enough": "unsure",
    "is reading the context": "reading",
    "decode together": "crowded",
    "proposer is none": OFF,
}
"""part of a sentence that says why there was no draft, and its label"""


class Metrics:
    """The counters; labels come from closed sets only, never from a client's text."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = self._counter("requests", "requests answered", "method", "ending")
        self.tokens = self._counter("tokens", "tokens by kind: prompt, cached, completion", "kind")
        self.drafted = self._counter("drafted_tokens", "tokens drafted", "proposer")
        self.accepted = self._counter("accepted_tokens", "drafted tokens that were accepted", "proposer")
        self.proposing = self._counter("proposing_seconds", "time spent drafting", "proposer")
        self.rounds = self._counter("rounds", "rounds, by who drafted or why nobody did", "choice")
        self.rechecks = self._counter("rechecks", "near-ties that were decided again by plain decoding")
        # A counter must not fall, and a gauge of the difference could not be rated.
        self.saved = self._counter("time_saved_seconds", "decoding time saved by requests that gained")
        self.lost = self._counter("time_lost_seconds", "decoding time lost by requests that did not")
        self.slower = self._counter("slower_requests", "requests that plain decoding would have ended sooner")
        self.answered = self._counter("completions", "completions answered, by who had the answer", "source")
        self.suggestions = self._counter("suggestions", "what became of completions", "event")
        self.accepted_chars = self._counter("accepted_chars", "characters of completions accepted")
        self.crashes = self._counter("worker_crashes", "workers that ended unasked")
        self.slow_clients = self._counter("slow_clients", "clients dropped because they did not read")
        self.opened = self._counter("connections_opened", "connections let in")
        self.connections = Gauge("localspec_connections", "connections open now", registry=self.registry)
        self._no_loss: Gauge | None = None
        self._smallest = 1.0

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(f"localspec_{name}", what, labels, registry=self.registry)

    def count_result(self, result: Result) -> None:
        """Add one generation's tokens and statistics."""
        self.tokens.labels("prompt").inc(result.prompt_tokens)
        self.tokens.labels("cached").inc(result.cached_tokens)
        self.tokens.labels("completion").inc(result.completion_tokens)
        self.rechecks.inc(result.stats.rechecks)
        for name, share in result.stats.proposers.items():
            self.drafted.labels(name).inc(share.drafted)
            self.accepted.labels(name).inc(share.accepted)
            self.proposing.labels(name).inc(share.seconds)
        for choice, rounds in result.stats.choices.items():
            self.rounds.labels(label_of(choice)).inc(rounds)
        self._count_time(result.completion_tokens, result.stats)

    def _count_time(self, tokens: int, stats: Stats) -> None:
        saved, speed = stats.time_saved_s, stats.decode_tokens_per_s
        # Who asked for plain decoding got it: what is left is the noise of the clock.
        if saved is None or all(label_of(choice) == OFF for choice in stats.choices):
            return
        self.saved.inc(max(saved, 0.0))
        self.lost.inc(max(-saved, 0.0))
        self.slower.inc(saved < 0)
        if tokens >= BOUND_TOKENS and speed:
            taken = (tokens - 1) / speed
            self._bound(max(taken + saved, 0.0) / taken)

    def _bound(self, ratio: float) -> None:
        """Keep the smallest; before the first there is none to show."""
        if self._no_loss is None:
            self._no_loss = Gauge("localspec_no_loss_bound", NO_LOSS, registry=self.registry)
        elif ratio >= self._smallest:
            return
        self._smallest = ratio
        self._no_loss.set(ratio)

    def totals(self) -> dict[str, float]:
        """Every sample, keyed as Prometheus writes it: ``localspec_tokens_total{kind="prompt"}``."""
        samples = (sample for family in self.registry.collect() for sample in family.samples)
        return {_key(s.name, s.labels): s.value for s in samples}

    def text(self) -> str:
        """Prometheus' text format."""
        return generate_latest(self.registry).decode()


def label_of(choice: str) -> str:
    """Who drafted, or why nobody did, as one of a few words."""
    if choice in PROPOSERS:
        return choice
    return next((label for part, label in REASONS.items() if part in choice), "other")


def _key(name: str, labels: dict[str, str]) -> str:
    inner = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}{{{inner}}}" if inner else name
