"""What the dialects have in common: fields of bodies, and the options that they mean."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from localspec.client import Client
from localspec.config import load_config
from localspec.errors import InvalidOptions, ModelNotFound, ShuttingDown
from localspec.http import samplers
from localspec.http.endpoint import REMEDY
from localspec.protocol.messages import Completions, ModelDescription
from localspec.protocol.options import Options, check_value, parse_options
from localspec.protocol.results import Result

DEFAULT_MODEL = "localspec"
"""what clients that must name a model call the one that is configured"""
SEEDS = 2**63
CHANCE = (-1, 2**32 - 1)
"""seeds that mean none; the second is what the first becomes in 32 bits"""
LEAST_TOP_P = 1e-6

Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Stops = str | list[str] | None
Whole = int | float
"""a whole number; some programs write all of theirs with a point"""


class Sampling(msgspec.Struct, kw_only=True):
    """How tokens are chosen, as the dialects say it; without a seed, or with -1, chance decides.

    ``repeat_last_n`` tokens are what penalties look at, there; here it is all of them.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: Whole | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None
    repeat_last_n: Whole | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    samplers: list[str] | str | None = None
    seed: Seed | None = None
    stop: Stops = None

    def __post_init__(self) -> None:
        if self.seed in CHANCE:
            self.seed = None
        if self.repeat_penalty in (None, 1) and not (self.frequency_penalty or self.presence_penalty):
            self.repeat_last_n = None  # nothing looks at them
        if self.top_k is not None:
            self.top_k = max(0, self.top_k)  # as far as that goes all tokens may come, by either


SAMPLED = tuple(set(Sampling.__struct_fields__) & set(Options.__struct_fields__))


def options_of(sampling: Sampling, others: dict[str, Any], own: dict[str, Any] | None) -> Options:
    """What was said in a dialect; ``others`` by our names. ``own`` are options of ours, and come first.

    What is None was not said. Raises :class:`InvalidOptions`.
    """
    refuse(sampling, {"repeat_last_n": (-1,)})
    own = own or {}
    said = {name: getattr(sampling, name) for name in SAMPLED}
    off = samplers.left_out(samplers.names_of(sampling.samplers))
    if sampling.temperature is None:
        off.pop("temperature", None)  # what that is without one is not theirs to say
    said |= off
    values = {name: _whole(value) for name, value in (said | others).items() if value is not None}
    if "model" in values and (name := model_of(values.pop("model"))) is not None:
        values["model"] = name
    if isinstance(stop := values.get("stop"), str):
        values["stop"] = [stop]
    if "stop" in values:
        values["stop"] = [text for text in values["stop"] if text]
    if "top_p" in values:
        values["top_p"] = max(values["top_p"], LEAST_TOP_P)  # 0 is the most probable token alone, as this is
    if "seed" in values:
        values["seed"] %= SEEDS
    values |= own
    for name in values.keys() & set(Options.__struct_fields__):
        told = f"localspec.{name}" if name in own else name
        check_value(Options, name, values[name], said=told, remedy=REMEDY, strict=True)
    return parse_options(values)


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def length_of(said: Whole | None) -> Whole | None:
    """How many tokens at most; less than 0 is: as many as the context holds, which is ours without it."""
    return None if said is None or said < 0 else said


def model_of(name: str | None) -> str | None:
    """The model that is meant; None is the one that is configured."""
    return None if name in (None, "", DEFAULT_MODEL) else name


def configured_model() -> str:
    """The name of the model that is configured. Raises :class:`InvalidOptions`."""
    return load_config().options.model or ""


def refuse(body: msgspec.Struct, fields: dict[str, tuple[Any, ...]]) -> None:
    """Raises :class:`InvalidOptions` for a field whose value is none of those that change nothing: an answer
    that does without it would be another one than was asked for."""
    for name, harmless in fields.items():
        value = getattr(body, name)
        if value is not None and value not in harmless:
            others = " or ".join(msgspec.json.encode(each).decode() for each in harmless)
            raise InvalidOptions(f"{name} is not supported", f"Leave {name} out, or say {others}.")


def names_of(models: Iterable[ModelDescription]) -> dict[str, ModelDescription]:
    """Those that can be loaded, by the name to type first; of one in two formats, the first."""
    named: dict[str, ModelDescription] = {}
    for model in models:
        if model.problem is None:
            named.setdefault(model.names[0] if model.names else model.id, model)
    return named


async def named_models(client: Client) -> dict[str, ModelDescription]:
    """All that can be loaded; first the one that is configured, by the name for that."""
    named = names_of(await client.models())
    configured = await asyncio.to_thread(configured_model)
    own = [each for each in named.values() if configured in (each.id, each.path, *each.names)]
    return {DEFAULT_MODEL: own[0], **named} if own else named


async def model_named(client: Client, name: str) -> ModelDescription:
    """The model that goes by any such name. Raises :class:`ModelNotFound`."""
    named = await named_models(client)
    for model in named.values() if name not in named else [named[name]]:
        if name in named or name in (model.id, model.path, *model.names):
            return model
    raise ModelNotFound(f"there is no model named {name[:200]!r}")


def modified_s(model: ModelDescription) -> float:
    """When its file was made; one that is gone meanwhile is as old as 1970."""
    try:
        return os.stat(model.path).st_mtime
    except OSError:
        return 0.0


def uncut(result: Result) -> Result:
    """The result. Raises :class:`ShuttingDown` for what was ended from outside: who asked has not hung up, so
    it was the daemon's end."""
    if result.finish_reason == "cancelled":
        raise ShuttingDown("the daemon ended before the answer did")
    return result


def text_of(filled: Completions) -> str:
    """What fills a gap, as it is shown."""
    return filled.items[0].text if filled.items else ""


def statistics(result: Result) -> dict[str, Any]:
    """Our own account of a result, without its text."""
    told: dict[str, Any] = msgspec.to_builtins(result)
    del told["text"]
    return told
