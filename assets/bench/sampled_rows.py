"""Microseconds that choosing a token from one row of logits takes, by vocabulary and sampling settings.

    python -m assets.bench.sampled_rows [--rows 20] [--vocabulary 49152 151936 256000] [--flat]

``plain`` chooses a token, as a request without strict mode does in every round; ``strict`` also looks at how
near the choice is to another one, as a seeded request does. The row is read from a backend's buffer. Logits
fall with the logarithm of their rank as those of language models do; with ``--flat`` they are normally
distributed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from localspec.backends.toy import ToyLogits
from localspec.speculation.draft import NOTHING
from localspec.speculation.noise import Noise
from localspec.speculation.sampling import Sampler, SamplingParams
from localspec.speculation.verify import ForwardRows, TargetRows, judge_for

Make = Callable[[int, np.random.Generator], NDArray[np.float32]]
VOCABULARIES = (8_192, 49_152, 151_936, 256_000)
SETTINGS: Mapping[str, SamplingParams] = {
    "greedy": SamplingParams(),
    "greedy, repeat 1.1": SamplingParams(repeat_penalty=1.1),
    "T 0.7": SamplingParams(temperature=0.7),
    "T 0.8 top_p 0.95": SamplingParams(temperature=0.8, top_p=0.95),
    "T 0.8 top_k 40": SamplingParams(temperature=0.8, top_k=40),
    "T 0.8 top_k 40 top_p 0.95 min_p 0.05": SamplingParams(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05),
    "T 0.8 min_p 0.05": SamplingParams(temperature=0.8, min_p=0.05),
    "T 1.5 top_p 0.99": SamplingParams(temperature=1.5, top_p=0.99),
}


def ranked_row(size: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Logits that fall by 1.5 with the logarithm of the rank, with noise: a few dozen tokens hold 95 %."""
    ranks = np.log(rng.permutation(size) + 1.0)
    return (20.0 - 1.5 * ranks + rng.standard_normal(size)).astype(np.float32)


def flat_row(size: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Normally distributed logits: tens of thousands of tokens hold 95 %."""
    return rng.standard_normal(size).astype(np.float32)


def choose(logits: ToyLogits, sampler: Sampler, position: int, *, strict: bool) -> int:
    """One row's token, decided as the engine does."""
    judge = judge_for(TargetRows(ForwardRows(logits), 0), sampler, NOTHING, position, None)
    if strict:
        judge.margin(0)
    return judge.token(0, None)


def microseconds(params: SamplingParams, rows: list[ToyLogits], *, strict: bool) -> float:
    """The median over ``rows``, each the fastest of three."""
    sampler = Sampler(params, Noise(1), seeded=True, prompt=range(100))
    choose(rows[0], sampler, 0, strict=strict)
    times = []
    for position, row in enumerate(rows):
        fastest = float("inf")
        for _ in range(3):
            started = time.perf_counter()
            choose(row, sampler, position, strict=strict)
            fastest = min(fastest, time.perf_counter() - started)
        times.append(fastest)
    return 1e6 * statistics.median(times)


def table(
    vocabularies: list[int], n: int, make: Callable[[int, np.random.Generator], NDArray[np.float32]]
) -> None:
    """Print a line for each setting: plain and strict for each vocabulary."""
    rng = np.random.default_rng(7)
    rows = {size: [ToyLogits(make(size, rng)[None]) for _ in range(n)] for size in vocabularies}
    print(f"{'µs a row, plain / strict':38}" + "".join(f"{size:>18,}" for size in vocabularies))
    for name, params in SETTINGS.items():
        cells = []
        for size in vocabularies:
            plain, strict = (microseconds(params, rows[size], strict=strict) for strict in (False, True))
            cells.append(f"{plain:8.0f} /{strict:8.0f}")
        print(f"{name:38}" + "".join(cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--vocabulary", type=int, nargs="+", default=list(VOCABULARIES))
    parser.add_argument("--flat", action="store_true", help="normally distributed logits")
    args = parser.parse_args()
    table(args.vocabulary, args.rows, flat_row if args.flat else ranked_row)


if __name__ == "__main__":
    main()
