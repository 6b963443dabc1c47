"""The size of a model's KV cache: tokens per sequence, and number of sequences."""

from __future__ import annotations

from typing import NamedTuple

from localspec.errors import InvalidOptions, ModelTooLarge
from localspec.models.fit import MIN_CTX, context_size, free_memory, preferred_sequences
from localspec.protocol.engine_config import EngineConfig
from localspec.units import size

MIN_BATCH = 256
WIDEST_ROUND = 48
"""the newest token and the longest draft: long copies gain from such forwards where they cost little,
as on a GPU"""


class CellBytes(NamedTuple):
    """Bytes of a sequence: for each token, and once (the cells of a window, a recurrent state)."""

    each: int = 0
    sequence: int = 0

    def __add__(self, other: tuple[int, ...]) -> CellBytes:  # type: ignore[override]
        return CellBytes(self.each + other[0], self.sequence + other[1])


def choose_sizes(
    trained: int | None, taken: CellBytes, config: EngineConfig, weights: int
) -> tuple[int, int]:
    """Return (tokens per sequence, sequences) from the config, the context that the model was trained for,
    the bytes that sequences take, its bytes of weights, and the free memory.

    Raises :class:`InvalidOptions` for a context too small to work in, :class:`ModelTooLarge` for
    one that does not fit.
    """
    n_ctx = context_size(trained, config)
    if n_ctx < MIN_CTX:
        raise InvalidOptions(f"n_ctx is {n_ctx} tokens; at least {MIN_CTX} are needed", "Set a larger n_ctx.")
    available = free_memory()
    each, wanted = taken.each * n_ctx + taken.sequence, max(1, config.parallel)
    if each * wanted > available:
        raise ModelTooLarge(
            f"a KV cache of {wanted} x {n_ctx} tokens takes {size(each * wanted)},"
            f" but {size(available)} are free",
            "Set a smaller n_ctx or parallel.",
        )
    most = min(preferred_sequences(each, weights), available // max(1, each))
    return n_ctx, config.parallel or max(1, most)


def widest_forward(config: EngineConfig, n_sequences: int) -> int:
    """The tokens of the widest forward: a piece of a prompt, or a round of all sequences with full drafts."""
    return max(config.chunk, MIN_BATCH, n_sequences * WIDEST_ROUND)
