"""Totals since the daemon started, as JSON and as Prometheus text, and the daemon's log file.

The log is of bounded size, and has the output of native code, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shutil
from itertools import pairwise
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest

from localspec import home
from localspec.protocol.jsonrpc import shortened
from localspec.protocol.options import KINDS
from localspec.protocol.requests import Result, Stats

MAX_BYTES = 4 * 1024 * 1024
CHECK_S = 10.0
"""seconds between two checks of its size: workers write into it directly"""
OUTPUTS = (1, 2)
LONGEST_LINE = 2000
"""characters of a message, which may repeat names given by a client"""

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class OneLine(logging.Formatter):
    """Formats a message as one line without control characters: text of a client can neither begin a line
    nor control the terminal that shows it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        line = shortened(super().formatMessage(record), LONGEST_LINE)
        return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], line)


def redirect() -> None:
    """Redirect stdout and stderr, also those of later child processes, to the home's log."""
    with home.opened_log() as log:
        if (path := home.log_path()).exists():
            path.chmod(0o600)
        for output in OUTPUTS:
            os.dup2(log.fileno(), output)


async def keep_small() -> None:
    """Cut the home's log when it is too long, until cancelled."""
    # The path is computed once: that creates the directory, which would come back after its deletion.
    log, older = home.log_path(), home.older_logs()
    while True:
        cut(log, older)
        await asyncio.sleep(CHECK_S)


def cut(log: Path, older: tuple[Path, ...]) -> None:
    """Rotate a log that is too long: its newest part to the first of ``older``, that one's to the second, ….

    Workers, and the native code in them, keep the file open as long as they run. So it is copied and emptied
    instead of renamed: they go on appending to the same file.
    """
    try:
        if log.stat().st_size <= MAX_BYTES:
            return
    except OSError:
        return
    # The size is bounded in any case; on a full disk the old part is lost.
    with contextlib.suppress(OSError):
        for older_one, newer in pairwise(reversed(older)):
            if newer.exists():
                os.replace(newer, older_one)
        with open(log, "rb") as whole, open(older[0], "wb", opener=home.private_opener) as kept:
            whole.seek(-MAX_BYTES, os.SEEK_END)
            shutil.copyfileobj(whole, kept)
    with contextlib.suppress(OSError):
        os.truncate(log, 0)


disable_created_metrics()  # type: ignore[no-untyped-call]

BOUND_TOKENS = 64
"""least tokens of an answer from which a speed is computed"""
NO_LOSS = f"smallest plain time / time taken of a request with {BOUND_TOKENS} tokens or more"
PROPOSERS = frozenset(kind.name for kind in KINDS)
OFF = "off"
REASONS = {
    "no draft found": "nothing",
    "was not worth": "not_worth",
    "drafting would cost more": "not_worth",
    "exactness = strict": "strict",
    "is not sure enough": "unsure",
    "is reading the context": "reading",
    "proposer is none": OFF,
}
"""labels of the reasons for no draft, by a part of the reason's sentence"""


class Metrics:
    """The counters; their labels are of closed sets, never a client's text."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = self._counter("requests", "requests answered", "method", "ending")
        self.tokens = self._counter("tokens", "tokens by kind: prompt, cached, completion", "kind")
        self.prompt_s = self._counter("prompt_seconds", "time from the end of queueing to the first token")
        self.read = self._counter("timed_prompt_tokens", "prompt tokens that were read in prompt_seconds")
        self.decode_s = self._counter("decode_seconds", "time from the first token of an answer to its last")
        self.timed = self._counter("timed_tokens", "tokens that came in decode_seconds: all after the first")
        self.longest = Gauge(
            "localspec_longest_tokens", "most tokens of a prompt and its answer", registry=self.registry
        )
        self._longest = 0
        self.drafted = self._counter("drafted_tokens", "tokens drafted", "proposer")
        self.accepted = self._counter("accepted_tokens", "drafted tokens that were accepted", "proposer")
        self.proposing = self._counter("proposing_seconds", "time spent drafting", "proposer")
        self.rounds = self._counter("rounds", "rounds, by proposer or by the reason for no draft", "choice")
        self.rounded = self._counter("rounded_tokens", "tokens from rows that may be rounded otherwise")
        # A counter must not fall, and a gauge of the difference would have no rate.
        self.saved = self._counter("time_saved_seconds", "decoding time saved by requests that were faster")
        self.lost = self._counter("time_lost_seconds", "decoding time lost by requests that were slower")
        self.slower = self._counter("slower_requests", "requests that plain decoding would have ended sooner")
        self.answered = self._counter(
            "completions", "completions answered, by source of the answer", "source"
        )
        self.suggestions = self._counter("suggestions", "feedback on completions, by event", "event")
        self.accepted_chars = self._counter("accepted_chars", "characters of completions accepted")
        self.crashes = self._counter("worker_crashes", "workers that ended unexpectedly")
        self.slow_clients = self._counter("slow_clients", "clients dropped because they did not read")
        self.opened = self._counter("connections_opened", "connections accepted")
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
        self.rounded.inc(result.stats.rounded_tokens)
        self._count_speed(result)
        for name, share in result.stats.proposers.items():
            self.drafted.labels(name).inc(share.drafted)
            self.accepted.labels(name).inc(share.accepted)
            self.proposing.labels(name).inc(share.seconds)
        for choice, rounds in result.stats.choices.items():
            self.rounds.labels(label_of(choice)).inc(rounds)
        self._count_time(result.completion_tokens, result.stats)

    def _count_speed(self, result: Result) -> None:
        stats, answered = result.stats, result.completion_tokens
        self._longest = max(self._longest, result.prompt_tokens + answered)
        self.longest.set(self._longest)
        if stats.ttft_s is not None:
            # An answer without a token has no such time, so its prompt must not count in the rate.
            self.prompt_s.inc(max(0.0, stats.ttft_s - stats.queued_s))
            self.read.inc(result.prompt_tokens - result.cached_tokens)
        if stats.decode_tokens_per_s:
            self.decode_s.inc((answered - 1) / stats.decode_tokens_per_s)
            self.timed.inc(answered - 1)

    def _count_time(self, tokens: int, stats: Stats) -> None:
        saved, speed = stats.time_saved_s, stats.decode_tokens_per_s
        # With proposer none all rounds are plain: the difference is noise of the clock.
        if saved is None or all(label_of(choice) == OFF for choice in stats.choices):
            return
        self.saved.inc(max(saved, 0.0))
        self.lost.inc(max(-saved, 0.0))
        self.slower.inc(saved < 0)
        if tokens >= BOUND_TOKENS and speed:
            taken = (tokens - 1) / speed
            self._bound(max(taken + saved, 0.0) / taken)

    def _bound(self, ratio: float) -> None:
        """Keep the smallest ratio; the gauge does not exist before the first."""
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
    """The label of a round: its proposer, or the reason for no draft, as one of a few words."""
    if choice in PROPOSERS:
        return choice
    return next((label for part, label in REASONS.items() if part in choice), "other")


def _key(name: str, labels: dict[str, str]) -> str:
    inner = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}{{{inner}}}" if inner else name
