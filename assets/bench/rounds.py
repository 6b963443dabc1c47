"""Time the engine's own work in a round, on a device that takes a set time for a forward.

    python -m assets.bench.rounds [MILLISECONDS…]

The device computes while Python goes on, until the rows are read; they are prepared in memory, as llama.cpp
hands them over. A forward of w tokens takes the set time and a twentieth of it for each further token. What a
round takes beyond its forward is the engine's own: proposing, choosing, accepting, publishing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from msgspec.structs import replace

from localspec.backends.base import Rows, Span
from localspec.backends.llama_cpp.backend import LlamaLogits
from localspec.engine.engine import Engine
from localspec.protocol.options import LOOKUP, NONE, Options
from localspec.protocol.requests import Request, TokenPrompt
from tests.toy import ToyBackend, ToyVocabulary

SIZES = 8_000, 152_000, 262_000
WIDER = 0.05
"""share of a forward's time that each further token takes"""
PERIOD, PROMPT, TOKENS, POOL = 300, 600, 400, 64
PLAIN = Options(proposer=NONE, temperature=0.0)
DRAFT = Options(proposer=LOOKUP.name, k=4, temperature=0.0)
WARM = {"temperature": 0.7, "top_p": 0.95}
HOW: dict[str, tuple[dict[str, float], float]] = {
    "greedy": ({}, 14.0),
    "T 0.7, a nucleus of 1 token": (WARM, 14.0),
    "T 0.7, a nucleus of 4": (WARM, 12.5),
    "T 1.2, a nucleus of 300": (WARM | {"temperature": 1.2}, 14.0),
}


class Words(ToyVocabulary):
    end_tokens = frozenset[int]()

    def __init__(self, size: int) -> None:
        self.size = size

    def piece(self, token: int) -> bytes:
        return b"%d " % token


class TimedLogits(LlamaLogits):
    """Rows that can be read once the device has computed them."""

    def __init__(self, rows: Rows, ready: float) -> None:
        super().__init__(rows)
        self._ready = ready

    def wait(self) -> None:
        while time.perf_counter() < self._ready:
            pass

    def argmax(self) -> list[int]:
        self.wait()
        return super().argmax()

    def choice(self, i: int) -> int | None:
        self.wait()
        return super().choice(i)

    def rows(self, start: int, stop: int) -> Rows:
        self.wait()
        return super().rows(start, stop)

    def row(self, i: int) -> Rows:
        self.wait()
        return super().row(i)


class TimedBackend(ToyBackend):
    """Repeats a text of :data:`PERIOD` tokens; other tokens' probabilities fall as a power of their rank."""

    def __init__(self, size: int, seconds: float, peak: float) -> None:
        super().__init__(n_ctx=4096, vocabulary=Words(size))
        rng = np.random.default_rng(0)
        ranks = np.arange(2, size + 2, dtype=np.float32)
        self._pool = np.stack([12 - 1.6 * np.log(rng.permutation(ranks)) for _ in range(POOL)])
        self.text = rng.integers(0, size, PERIOD).tolist()
        self._peaks = np.zeros(POOL, dtype=np.int64), np.zeros(POOL, dtype=np.float32)
        self._seconds, self._peak, self.computing = seconds, peak, 0.0

    def forward(self, batch: Sequence[Span]) -> Any:
        (span,) = batch
        cache, width = self._cache[span.sequence], len(span.tokens)
        self._kept[span.sequence]["before"] = len(cache)
        cache.extend(span.tokens)
        self._wide[span.sequence].extend([False] * width)
        rows, (tokens, values) = np.arange(span.rows), self._peaks
        self._pool[rows, tokens[rows]] = values[rows]  # as it was before the last forward
        tokens[rows] = [self.text[at % PERIOD] for at in range(len(cache) - span.rows + 1, len(cache) + 1)]
        values[rows] = self._pool[rows, tokens[rows]]
        self._pool[rows, tokens[rows]] = self._peak
        took = self._seconds * (1 + WIDER * (width - 1))
        self.computing += took
        return TimedLogits(self._pool[: span.rows], time.perf_counter() + took)


def measure(size: int, seconds: float, options: Options, peak: float) -> tuple[float, float]:
    """The seconds of a round beyond its forward, and their share of the round; ``peak``: the best logit."""
    backend = TimedBackend(size, seconds, peak)
    engine = Engine(backend)
    prompt = tuple(backend.text[at % PERIOD] for at in range(PROMPT))
    for tokens in (60, TOKENS):  # the first request teaches the costs
        request = Request(prompt=TokenPrompt(prompt), options=replace(options, max_tokens=tokens))
        stream, first = engine.stream(request), 0.0
        for _ in stream:
            if not first:
                first, backend.computing = time.perf_counter(), 0.0
        total = time.perf_counter() - first
    rounds = stream.result.stats.rounds
    own = (total - backend.computing) / rounds
    return own, own * rounds / total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("milliseconds", nargs="*", type=float, default=[1, 3, 12], help="of a forward")
    seconds = [each / 1000 for each in parser.parse_args().milliseconds]
    print("| vocabulary | forward | sampling | draft | own time | share |\n|---|---|---|---|---|---|")
    for size, forward, (name, (how, peak)), plain in product(SIZES, seconds, HOW.items(), (PLAIN, DRAFT)):
        own, share = measure(size, forward, replace(plain, **how), peak)
        ms = f"{1000 * forward:g} ms | {name} | {plain.k or 0} | {1000 * own:.3f} ms"
        print(f"| {size:,} | {ms} | {share:.1%} |", flush=True)


if __name__ == "__main__":
    main()
