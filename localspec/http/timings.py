"""Timings of an answer, in seconds and in llama.cpp's format."""

from __future__ import annotations

import time
from typing import Any

from localspec.protocol.messages import StreamProgress
from localspec.protocol.results import Result, Token


def prompt_s(result: Result) -> float:
    """Seconds from the end of queueing to the first token."""
    return max(0.0, (result.stats.ttft_s or 0.0) - result.stats.queued_s)


def decode_s(result: Result) -> float:
    """Seconds from the first token to the last; 0 if no speed was measured."""
    speed = result.stats.decode_tokens_per_s
    return (result.completion_tokens - 1) / speed if speed else 0.0


def answer_s(result: Result) -> float:
    """Seconds for all tokens at the measured speed, 0 if there is none: their number by this is the speed."""
    speed = result.stats.decode_tokens_per_s
    return result.completion_tokens / speed if speed else 0.0


class Pace:
    """The timings of an answer on its way; it begins when the answer is asked for."""

    def __init__(self) -> None:
        self._began_s = time.perf_counter()
        self._answered = 0
        self._first_s: float | None = None

    def read(self, progress: StreamProgress) -> dict[str, int]:
        """llama.cpp's ``prompt_progress``."""
        return {
            "total": progress.total,
            "cache": progress.cached,
            "processed": progress.processed,
            "time_ms": round(1000 * (time.perf_counter() - self._began_s)),
        }

    def after(self, tokens: tuple[Token, ...]) -> dict[str, float]:
        """Count ``tokens``; return the tokens so far, and the milliseconds since the first ones came."""
        now = time.perf_counter()
        self._first_s = now if self._first_s is None else self._first_s
        self._answered += len(tokens)
        return {"predicted_n": self._answered, "predicted_ms": 1000 * (now - self._first_s)}


def timings(result: Result) -> dict[str, Any]:
    """llama.cpp's ``timings``: the rate of the answer is that of the tokens after the first, which comes of
    the prompt."""
    answered = result.completion_tokens
    told = {
        "cache_n": result.cached_tokens,
        **_rates("prompt", result.prompt_tokens - result.cached_tokens, 1000 * prompt_s(result)),
        **_rates("predicted", answered - 1, 1000 * decode_s(result)),
        "predicted_n": answered,
    }
    if result.stats.drafted:
        told |= {"draft_n": result.stats.drafted, "draft_n_accepted": result.stats.accepted}
    return told


def _rates(name: str, n: int, ms: float) -> dict[str, float]:
    return {
        f"{name}_n": n,
        f"{name}_ms": ms,
        f"{name}_per_token_ms": ms / n if n > 0 else 0.0,
        f"{name}_per_second": 1000 * n / ms if ms else 0.0,
    }
