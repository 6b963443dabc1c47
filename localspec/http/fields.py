"""What the dialects have in common: fields of bodies, and the options that they mean."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from localspec.config import load_config
from localspec.errors import InvalidOptions, ShuttingDown
from localspec.http.endpoint import REMEDY
from localspec.protocol.messages import Completions, ModelDescription
from localspec.protocol.options import Options, check_value, parse_options
from localspec.protocol.results import Result

DEFAULT_MODEL = "localspec"
"""what clients that must name a model call the one that is configured"""
SEEDS = 2**63
LEAST_TOP_P = 1e-6

Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Stops = str | list[str] | None


class Sampling(msgspec.Struct, kw_only=True):
    """How tokens are chosen, as all dialects say it."""

    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    seed: Seed | None = None
    stop: Stops = None


class FineSampling(Sampling, kw_only=True):
    """The same where there is more to say; without a seed, or with -1, chance decides."""

    top_k: int | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None

    def __post_init__(self) -> None:
        if self.seed == -1:
            self.seed = None
        if self.top_k is not None:
            self.top_k = max(0, self.top_k)  # as far as that goes all tokens may come, by either


def options_of(sampling: Sampling, others: dict[str, Any], own: dict[str, Any] | None) -> Options:
    """What was said in a dialect; ``others`` by our names. ``own`` are options of ours, and come first.

    What is None was not said. Raises :class:`InvalidOptions`.
    """
    own = own or {}
    names = (
        FineSampling.__struct_fields__ if isinstance(sampling, FineSampling) else Sampling.__struct_fields__
    )
    said = {name: getattr(sampling, name) for name in names}
    values = {name: value for name, value in (said | others).items() if value is not None}
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
