"""Totals since the daemon started, as JSON and as Prometheus text."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest

from localspec.protocol.results import Result

disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """The counters; labels come from closed sets only, never from a client's text."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = self._counter("requests", "requests answered", "method", "ending")
        self.tokens = self._counter("tokens", "tokens by kind: prompt, cached, completion", "kind")
        self.drafted = self._counter("drafted_tokens", "tokens drafted", "proposer")
        self.accepted = self._counter("accepted_tokens", "drafted tokens that were accepted", "proposer")
        self.rounds = self._counter("rounds", "rounds of propose, forward and verify")
        self.crashes = self._counter("worker_crashes", "workers that ended unasked")
        self.slow_clients = self._counter("slow_clients", "clients dropped because they did not read")
        self.opened = self._counter("connections_opened", "connections let in")
        self.connections = Gauge("localspec_connections", "connections open now", registry=self.registry)

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(f"localspec_{name}", what, labels, registry=self.registry)

    def count_result(self, result: Result) -> None:
        """Add one generation's tokens and statistics."""
        self.tokens.labels("prompt").inc(result.prompt_tokens)
        self.tokens.labels("cached").inc(result.cached_tokens)
        self.tokens.labels("completion").inc(result.completion_tokens)
        self.rounds.inc(result.stats.rounds)
        for name, share in result.stats.proposers.items():
            self.drafted.labels(name).inc(share.drafted)
            self.accepted.labels(name).inc(share.accepted)

    def totals(self) -> dict[str, float]:
        """Every sample, keyed as Prometheus writes it: ``localspec_tokens_total{kind="prompt"}``."""
        samples = (sample for family in self.registry.collect() for sample in family.samples)
        return {_key(s.name, s.labels): s.value for s in samples}

    def text(self) -> str:
        """Prometheus' text format."""
        return generate_latest(self.registry).decode()


def _key(name: str, labels: dict[str, str]) -> str:
    inner = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}{{{inner}}}" if inner else name
