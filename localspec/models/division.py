"""The division of a model over devices and machines: the share of each, and the plan of what goes where."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from msgspec.structs import replace

from localspec.errors import ModelTooLarge
from localspec.models.directory import ModelDirectory
from localspec.models.gguf import MAX_NUMBER, GgufHeader
from localspec.models.model import Model
from localspec.models.needs import WIDE, Size, lower_contexts, size_of
from localspec.protocol.requests import EngineConfig
from localspec.wording import size

DIVIDED_SEQUENCES = 2
"""most sequences of a model that is divided, where none are configured: each takes layers from the device"""


def nodes_of(model: Model, config: EngineConfig) -> tuple[str, ...]:
    """The machines that share this model with this one."""
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
    """Bytes of other devices for a whole GGUF model."""
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
