"""How tokens are chosen, and how long that may take, as all dialects say it: the options that they mean."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from localspec.client import Client, Deadlines
from localspec.http import bias, samplers
from localspec.http.endpoint import REMEDY
from localspec.http.fields import refuse
from localspec.http.models import configured, model_of
from localspec.protocol.options import Options, check_value, parse_options

SEEDS = 2**63
CHANCE = (-1, 2**32 - 1)
"""seeds that mean none; the second is what the first becomes in 32 bits"""
LEAST_TOP_P = 1e-6
LONGEST_MS = 600_000

Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class Sampling(msgspec.Struct, kw_only=True):
    """How tokens are chosen, as the dialects say it; without a seed, or with -1, chance decides.

    ``repetition_penalty`` is another name of ``repeat_penalty``. Without ``repeat_last_n`` penalties look at
    the whole answer, and ``repeat_penalty`` at the prompt, too.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None
    repetition_penalty: float | None = None
    repeat_last_n: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    samplers: list[str] | str | None = None
    seed: Seed | None = None
    stop: str | list[str] | None = None
    logit_bias: bias.Said | None = None
    # What is not supported.
    ignore_eos: bool | None = None
    grammar: str | None = None
    json_schema: Any = None
    lora: list[Any] | None = None
    mirostat: int | None = None
    typical_p: float | None = None
    tfs_z: float | None = None
    top_n_sigma: float | None = None
    dry_multiplier: float | None = None
    xtc_probability: float | None = None
    dynatemp_range: float | None = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    structured_outputs: Any = None
    min_tokens: int | None = None
    stop_token_ids: list[int] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    length_penalty: float | None = None
    use_beam_search: bool | None = None

    def __post_init__(self) -> None:
        if self.seed in CHANCE:
            self.seed = None
        if self.repeat_penalty is None:
            self.repeat_penalty = self.repetition_penalty
        if self.top_k is not None:
            self.top_k = max(0, self.top_k)  # as far as that goes all tokens may come, by either


class TimedSampling(Sampling, kw_only=True):
    """With how long an answer may take, 0 and less are for ever; and what its chunks tell of that."""

    t_max_prompt_ms: float | None = None
    t_max_predict_ms: float | None = None
    timings_per_token: bool | None = None
    return_progress: bool | None = None

    def deadlines(self) -> Deadlines:
        """Those that were said."""
        times: Deadlines = {}
        if self.t_max_prompt_ms is not None and self.t_max_prompt_ms > 0:
            times["max_prompt_ms"] = _ms(self.t_max_prompt_ms)
        if self.t_max_predict_ms is not None and self.t_max_predict_ms > 0:
            times["max_predict_ms"] = _ms(self.t_max_predict_ms)
        return times


SAMPLED = tuple(
    name
    for name in Sampling.__struct_fields__
    if name in Options.__struct_fields__ and name != "logit_bias"  # of texts the tokens are asked for
)
REFUSED: dict[str, tuple[Any, ...]] = {
    "ignore_eos": (False,),
    "grammar": ("",),
    "json_schema": ({},),
    "lora": ([],),
    "mirostat": (0,),
    "typical_p": (1,),
    "tfs_z": (1,),
    "top_n_sigma": (-1, 0),
    "dry_multiplier": (0,),
    "xtc_probability": (0,),
    "dynatemp_range": (0,),
    "guided_json": ({},),
    "guided_regex": ("",),
    "guided_choice": ([],),
    "guided_grammar": ("",),
    "structured_outputs": ({},),
    "min_tokens": (0,),
    "stop_token_ids": ([],),
    "allowed_token_ids": ([],),
    "bad_words": ([],),
    "length_penalty": (1,),
    "use_beam_search": (False,),
}


async def biased_options(
    client: Client,
    sampling: Sampling,
    others: dict[str, Any],
    own: dict[str, Any] | None,
    names: Mapping[str, str] = MappingProxyType({}),
) -> Options:
    """As :func:`options_of`, with ``logit_bias``."""
    found = await bias.bias_of(client, sampling.logit_bias, others.get("model"))
    return options_of(sampling, others | {"logit_bias": found}, own, names)


def options_of(
    sampling: Sampling,
    others: dict[str, Any],
    own: dict[str, Any] | None,
    names: Mapping[str, str] = MappingProxyType({}),
) -> Options:
    """Return the options of a request in a dialect.

    ``others`` are further values by the names of :class:`Options`. ``own`` are values of the field
    ``localspec``, which take precedence. ``names`` are the dialect's names of options, for error messages.
    None stands for a value that was not given. Raises :class:`InvalidOptions`.
    """
    refuse(sampling, REFUSED)
    own = own or {}
    values = {"overflow": configured().options.overflow or "refuse"} | _values(sampling, others)
    values |= own
    for name, value in values.items():
        if name in Options.__struct_fields__:
            told = f"localspec.{name}" if name in own else names.get(name, name)
            check_value(Options, name, value, said=told, remedy=REMEDY, strict=True)
    return parse_options(values)


def _values(sampling: Sampling, others: dict[str, Any]) -> dict[str, Any]:
    """All that was said, as our options have it."""
    said = {name: getattr(sampling, name) for name in SAMPLED} | others
    said["model"] = model_of(said.get("model"))
    values = {name: value for name, value in said.items() if value is not None}
    off = samplers.left_out(sampling.samplers)
    if "temperature" not in values:
        off.pop("temperature", None)  # what that is without one is not theirs to say
    values |= off
    if (stop := values.get("stop")) is not None:
        values["stop"] = [text for text in ([stop] if isinstance(stop, str) else stop) if text]
    if "top_p" in values:
        values["top_p"] = max(values["top_p"], LEAST_TOP_P)  # 0 is the most probable token alone, as this is
    if "seed" in values:
        values["seed"] %= SEEDS
    return values


def _ms(said: float) -> int:
    return max(1, min(round(said), LONGEST_MS))
