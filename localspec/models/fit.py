"""The fit of a model into memory: what it needs with its draft model, and the tokens and sequences of its KV
cache, chosen by the memory that is free."""

from __future__ import annotations

from typing import NamedTuple

from localspec.errors import InvalidOptions, ModelError, ModelTooLarge
from localspec.models.division import share_of
from localspec.models.machine import free_memory
from localspec.models.model import Model
from localspec.models.needs import MIN_CTX, Needs, context_size, lower_contexts, preferred_sequences, size_of
from localspec.protocol.requests import EngineConfig
from localspec.wording import size


def needs_of(target: Model, draft: Model | None, config: EngineConfig, free: int | None = None) -> Needs:
    """The memory for target and draft; sizes missing in the headers count as 0. ``free``: see
    :meth:`Size.needs`. Raises :class:`ModelError`."""
    beside = None if draft is None else size_of(draft, config)
    return share_of(target, config).needs(beside, config, free)


def plan_context(
    target: Model, draft: Model | None, config: EngineConfig, free: int | None
) -> tuple[EngineConfig, Needs]:
    """The settings, with a smaller context if that has room in ``free`` bytes and the usual one has not, and
    the memory for target and draft, which may still be more; raises :class:`ModelError`."""
    for lower in lower_contexts(target, config):
        needs = needs_of(target, draft, lower, free)
        if free is None or needs.total <= free:
            break
    return lower, needs


def needs_beside(target: Model, draft: Model, config: EngineConfig, sequences: int) -> Needs:
    """The memory for a draft model beside a loaded target; nothing where a header cannot be read: the load
    reports it."""
    try:
        return size_of(target, config).beside(size_of(draft, config), config, sequences)
    except ModelError:
        return Needs()


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
    the bytes that sequences take, its bytes of weights, and the free memory. Raises :class:`InvalidOptions`
    for a context too small to work in, :class:`ModelTooLarge` for one that does not fit."""
    n_ctx = context_size(trained, config)
    if n_ctx < MIN_CTX:
        raise InvalidOptions(f"n_ctx is {n_ctx}; at least {MIN_CTX} tokens are needed", "Set a larger n_ctx.")
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
