"""The fit of a model into memory: what it needs with its draft model, the tokens and sequences of its KV
cache, and its division over devices and machines."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from localspec.errors import InvalidOptions, ModelError, ModelTooLarge
from localspec.models.directory import ModelDirectory
from localspec.models.gguf import MAX_NUMBER, GgufHeader
from localspec.models.machine import free_memory
from localspec.models.model import Model
from localspec.models.needs import (
    MIN_CTX,
    WIDE,
    Needs,
    Size,
    context_size,
    lower_contexts,
    preferred_sequences,
    size_of,
)
from localspec.protocol.requests import EngineConfig
from localspec.wording import size

DIVIDED_SEQUENCES = 2
"""most sequences of a model that is divided, where none are configured: each takes layers from the device"""


def nodes_of(model: Model, config: EngineConfig) -> tuple[str, ...]:
    return config.nodes if isinstance(model.header, ModelDirectory) else config.rpc


def servers_of(model: Model, config: EngineConfig) -> tuple[str, ...]:
    """The RPC servers that hold layers of this model, which is a GGUF one."""
    return config.rpc if model.format == "gguf" else ()


def share_of(target: Model, config: EngineConfig) -> Size:
    """The size of this machine's share of a target; raises :class:`ModelError`. Before the servers of a GGUF
    model were asked for their memory, each has an equal part of the layers."""
    whole, others = size_of(target, config), len(nodes_of(target, config))
    if isinstance(target.header, ModelDirectory) or not others:
        return whole.over(1 + others)
    return rest_of(target, replace(config, gpu_layers=equal_layers(target, config)))


def equal_layers(target: Model, config: EngineConfig) -> int:
    """The layers of a GGUF model on servers: those that were set, or an equal part for each machine."""
    assert isinstance(target.header, GgufHeader)
    equal = (target.header.layers + 1) * len(config.rpc) // (1 + len(config.rpc))
    return equal if config.gpu_layers < 0 else config.gpu_layers


def rest_of(target: Model, config: EngineConfig) -> Size:
    """The size of what stays with the processor of a GGUF model, by the settings' layers and experts."""
    whole, part = size_of(target, config), part_of(target, config)
    left = max(0, whole.weights - part.weights)
    return whole._replace(weights=left, cell=whole.cell - part.cell, mapped=min(whole.mapped, left))


def part_of(target: Model, config: EngineConfig) -> Size:
    """The size of the last layers of a GGUF model, which the settings put on other devices; the output counts
    as one."""
    whole, header, number = size_of(target, config), target.header, config.gpu_layers
    assert isinstance(header, GgufHeader)
    cell = whole.cell * max(0, min(number - 1, header.layers)) / max(1, header.layers)
    of_experts = header.number("expert_used_count") * header.number("expert_feed_forward_length")
    wide = max(header.number("feed_forward_length"), of_experts, header.number("embedding_length"))
    weights = header.bytes_of_last(number, config.cpu_experts)
    return whole._replace(weights=weights, cell=cell, process=0, activations=WIDE * wide)


def device_bytes(model: Model, config: EngineConfig) -> int:
    config = replace(config, gpu_layers=MAX_NUMBER, cpu_experts=0)
    return part_of(model, config).needs(None, config).total


def divide_model(target: Model, config: EngineConfig, there: int, here: int) -> EngineConfig:
    """The settings to load a GGUF model with ``there`` bytes of other devices, and ``here`` bytes of this.
    All layers go there, or those that are set, with as many sequences as have room, at least one; otherwise
    the experts of as few layers as possible stay here, then as few layers; last the context is lowered. The
    rest may still be too large for this machine. Raises :class:`ModelTooLarge` if set layers have no room.
    """
    plan = None
    for lower in lower_contexts(target, config):
        for plan in _divisions(target, lower, there):
            if rest_of(target, plan).needs(None, plan, here).total <= here:
                return plan
    if plan is None:
        experts = MAX_NUMBER if lower.cpu_experts < 0 else lower.cpu_experts
        least = replace(lower, parallel=lower.parallel or 1, cpu_experts=experts)
        needed = part_of(target, least).needs(None, least).total
        raise ModelTooLarge(
            f"{config.gpu_layers} layers of {target.name} (gpu_layers) need {size(needed)} of other devices, "
            f"where {size(there)} can be used",
            "Set a smaller gpu_layers, or none: as many as fit. If gpu_memory_mb is set, raise it.",
        )
    return plan


def _divisions(target: Model, config: EngineConfig, there: int) -> Iterator[EngineConfig]:
    """The plans of one context that have room in ``there`` bytes of other devices, the best first."""
    header = target.header
    assert isinstance(header, GgufHeader)
    layers = header.layers + 1 if config.gpu_layers < 0 else min(config.gpu_layers, header.layers + 1)
    experts = range(header.layers * header.has_experts + 1)
    if config.cpu_experts >= 0:
        experts = range(config.cpu_experts, config.cpu_experts + 1)
    places = [replace(config, gpu_layers=layers, cpu_experts=number) for number in experts]
    if config.gpu_layers < 0:
        places += [replace(places[-1], gpu_layers=number) for number in range(layers - 1, -1, -1)]
    most = config.parallel or size_of(target, config).needs(None, config).sequences
    numbers = [config.parallel] if config.parallel else [*range(most, 0, -1)]

    def fits(plan: EngineConfig) -> bool:
        return not plan.gpu_layers or part_of(target, plan).needs(None, plan).total <= there

    yield from (plan for number in numbers if fits(plan := replace(places[0], parallel=number)))
    for number in numbers[-DIVIDED_SEQUENCES:]:
        smaller = [replace(place, parallel=number) for place in places]
        yield from smaller[bisect_left(smaller, True, key=fits) :][:1]


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
