"""Timings of an answer, in seconds and in llama.cpp's format."""

from __future__ import annotations

import time
from typing import Any

from localspec.protocol.messages import StreamProgress
from localspec.protocol.results import Result, Token


def prompt_s(result: Result) -> float:
    """Return the seconds from the end of queueing to the first token."""
    return max(0.0, (result.stats.ttft_s or 0.0) - result.stats.queued_s)


def decode_s(result: Result) -> float:
    """Return the seconds from the first token to the last; 0 if no speed was measured."""
    speed = result.stats.decode_tokens_per_s
    return (result.completion_tokens - 1) / speed if speed else 0.0


def answer_s(result: Result) -> float:
    """Return the seconds that all tokens take at the measured speed; 0 if no speed was measured."""
    speed = result.stats.decode_tokens_per_s
    return result.completion_tokens / speed if speed else 0.0


class Pace:
    """The timings of a running answer, by the clock of the HTTP server.

    The prompt's time begins when its reading does, or else when the answer is requested.
    """

    def __init__(self) -> None:
        self._began_s = time.perf_counter()
        self._prompt = (0, 0)
        self._answered = 0
        self._first: tuple[float, int] | None = None

    def read(self, progress: StreamProgress) -> dict[str, int]:
        """Return llama.cpp's ``prompt_progress``, in tokens and ms."""
        if self._prompt == (0, 0):
            self._began_s = time.perf_counter()
        self._prompt = (progress.total, progress.cached)
        return {
            "total": progress.total,
            "cache": progress.cached,
            "processed": progress.processed,
            "time_ms": round(1000 * (time.perf_counter() - self._began_s)),
        }

    def after(self, tokens: tuple[Token, ...]) -> dict[str, float]:
        """Count ``tokens``; return the ``timings`` until now.

        The answer's time begins with its first tokens, so its rate is that of those after them.
        """
        now, (total, cached) = time.perf_counter(), self._prompt
        self._answered += len(tokens)
        if self._first is None:
            self._first = (now, self._answered)
        first_s, untimed = self._first
        return {
            "cache_n": cached,
            **_rates("prompt", total - cached, 1000 * (first_s - self._began_s)),
            **_rates("predicted", self._answered - untimed, 1000 * (now - first_s)),
            "predicted_n": self._answered,
        }


def timings(result: Result) -> dict[str, Any]:
    """Return llama.cpp's ``timings``; the answer's rate leaves out its first token, given by the prefill."""
    answered = result.completion_tokens
    fields = {
        "cache_n": result.cached_tokens,
        **_rates("prompt", result.prompt_tokens - result.cached_tokens, 1000 * prompt_s(result)),
        **_rates("predicted", answered - 1, 1000 * decode_s(result)),
        "predicted_n": answered,
    }
    if result.stats.drafted:
        fields |= {"draft_n": result.stats.drafted, "draft_n_accepted": result.stats.accepted}
    return fields


def _rates(name: str, n: int, ms: float) -> dict[str, float]:
    return {
        f"{name}_n": n,
        f"{name}_ms": ms,
        f"{name}_per_token_ms": ms / n if n > 0 else 0.0,
        f"{name}_per_second": 1000 * n / ms if ms else 0.0,
    }
