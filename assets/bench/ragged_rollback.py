"""The cost a layer of rolling four sequences back by different amounts on MLX: localspec's and mlx-lm's way.

Run with ``python -m assets.bench.ragged_rollback``; needs mlx and mlx-lm.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import mlx.core as mx

from localspec.backends.mlx.attention import Attention, Step
from localspec.backends.mlx.lm import BatchKVCache

ROWS, HEADS, NUMBERS, WIDTH, ROUNDS = 4, 8, 128, 6, 12
CONTEXTS = 256, 1024, 4096
KEPT = (6, 1, 3, 2)
"""tokens of each row that are kept in every round"""


def fresh(width: int) -> mx.array:
    return mx.random.normal((ROWS, HEADS, width, NUMBERS)).astype(mx.float16)


def rows_of_ours(context: int) -> Callable[[], None]:
    """Cells follow from positions: a rollback is a smaller number."""
    layer, lengths = Attention(None, slack=WIDTH), [context] * ROWS
    layer.append(Step(0, [0] * ROWS, context), fresh(context), fresh(context))

    def play() -> None:
        keys, values = layer.append(Step(0, lengths, WIDTH), fresh(WIDTH), fresh(WIDTH))
        mx.eval(keys, values)
        for i, kept in enumerate(KEPT):
            lengths[i] += kept

    return play


def rows_of_mlx_lm(context: int) -> Callable[[], None]:
    """Rows end at the same place: a rollback rolls every row to the right."""
    cache = BatchKVCache([0] * ROWS)
    cache.update_and_fetch(fresh(context), fresh(context))

    def play() -> None:
        keys, values = cache.update_and_fetch(fresh(WIDTH), fresh(WIDTH))
        mx.eval(keys, values)
        cache.prepare(right_padding=[WIDTH - kept for kept in KEPT])
        cache.finalize()
        mx.eval(cache.keys, cache.values)

    return play


def milliseconds(play: Callable[[], None]) -> float:
    """The fastest of some rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        play()
        best = min(best, time.perf_counter() - started)
    return 1000 * best


def main() -> None:
    print(f"{ROWS} rows, {HEADS} heads of {NUMBERS} numbers in half precision, on {mx.default_device()}")
    for context in CONTEXTS:
        ours, theirs = milliseconds(rows_of_ours(context)), milliseconds(rows_of_mlx_lm(context))
        print(f"behind {context:4} tokens: {ours:7.2f} ms, mlx-lm's way {theirs:7.2f} ms")


if __name__ == "__main__":
    main()
