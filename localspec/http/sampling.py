"""The fields of all dialects for sampling and time limits, and the options that they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from localspec.client import Client, Deadlines, Following
from localspec.http import bias, samplers
from localspec.http.endpoint import REMEDY
from localspec.http.fields import refuse
from localspec.http.models import configured, model_of
from localspec.protocol.options import Options, check_value, parse_options

SEEDS = 2**63
CHANCE = (-1, 2**32 - 1)
"""seeds that stand for a random one; the second is the first in 32 bits"""
LEAST_TOP_P = 1e-6
LONGEST_MS = 600_000

Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class Sampling(msgspec.Struct, kw_only=True):
    """The fields for sampling; without a seed, or with -1, the seed is random.

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
    logit_bias: bias.Bias | None = None
    # Fields that are not supported.
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
    adaptive_target: float | None = None
    min_keep: int | None = None
    post_sampling_probs: bool | None = None
    preserved_tokens: list[Any] | None = None
    reasoning_budget_tokens: int | None = None
    thinking_budget_tokens: int | None = None
    thinking_token_budget: int | None = None
    reasoning_format: str | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    truncate_prompt_tokens: int | None = None
    prompt_logprobs: int | bool | None = None
    logits_processors: list[Any] | None = None
    return_tokens_as_token_ids: bool | None = None
    structural_tag: Any = None

    def __post_init__(self) -> None:
        if self.seed in CHANCE:
            self.seed = None
        if self.repeat_penalty is None:
            self.repeat_penalty = self.repetition_penalty
        if self.top_k is not None:
            self.top_k = max(0, self.top_k)  # negative values and 0 both switch it off
        for name in OFF_BELOW_0:
            if (getattr(self, name) or 0) < 0:
                setattr(self, name, None)


class TimedSampling(Sampling, kw_only=True):
    """Sampling with time limits in ms, 0 and less for none, and with timings and progress in streams."""

    t_max_prompt_ms: float | None = None
    t_max_predict_ms: float | None = None
    timings_per_token: bool | None = None
    return_progress: bool | None = None

    def generating(self, *, stream: bool | None) -> Following:
        """Return the deadlines; by its ``progress`` a ``stream`` begins once the prompt is accepted."""
        return {**self.deadlines(), "progress": bool(stream)}

    def deadlines(self) -> Deadlines:
        """Return the limits that are set, as the client takes them."""
        times: Deadlines = {}
        if self.t_max_prompt_ms is not None and self.t_max_prompt_ms > 0:
            times["max_prompt_ms"] = _ms(self.t_max_prompt_ms)
        if self.t_max_predict_ms is not None and self.t_max_predict_ms > 0:
            times["max_predict_ms"] = _ms(self.t_max_predict_ms)
        return times


SAMPLED = tuple(
    name
    for name in Sampling.__struct_fields__
    if name in Options.__struct_fields__ and name != "logit_bias"  # its texts are tokenized first
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
    "adaptive_target": (-1,),
    "min_keep": (0, 1),
    "post_sampling_probs": (False,),
    "preserved_tokens": ([],),
    "reasoning_budget_tokens": (-1,),
    "thinking_budget_tokens": (-1,),
    "thinking_token_budget": (),
    "reasoning_format": ("none", "auto"),
    "include_stop_str_in_output": (False,),
    "skip_special_tokens": (True,),
    "truncate_prompt_tokens": (),
    "prompt_logprobs": (False,),
    "logits_processors": ([],),
    "return_tokens_as_token_ids": (False,),
    "structural_tag": ("",),
}
OFF_BELOW_0 = ("adaptive_target", "top_n_sigma", "dynatemp_range")
"""refused fields that any negative number switches off in llama.cpp"""


async def biased_options(
    client: Client,
    sampling: Sampling,
    others: dict[str, Any],
    own: dict[str, Any] | None,
    names: Mapping[str, str] = MappingProxyType({}),
) -> Options:
    """Return the options of a request as :func:`options_of` does, with ``logit_bias``."""
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
            shown = f"localspec.{name}" if name in own else names.get(name, name)
            check_value(Options, name, value, said=shown, remedy=REMEDY, strict=True)
    return parse_options(values)


def _values(sampling: Sampling, others: dict[str, Any]) -> dict[str, Any]:
    """Return all values that are given, by the names of our options."""
    given = {name: getattr(sampling, name) for name in SAMPLED} | others
    given["model"] = model_of(given.get("model"))
    values = {name: value for name, value in given.items() if value is not None}
    off = samplers.left_out(sampling.samplers)
    if "temperature" not in values:
        off.pop("temperature", None)  # without one the model's own holds, whatever the samplers
    values |= off
    if (stop := values.get("stop")) is not None:
        values["stop"] = [text for text in ([stop] if isinstance(stop, str) else stop) if text]
    if "top_p" in values:
        values["top_p"] = max(values["top_p"], LEAST_TOP_P)  # 0 is the most probable token alone, as this is
    if "seed" in values:
        values["seed"] %= SEEDS
    return values


def _ms(given: float) -> int:
    return max(1, min(round(given), LONGEST_MS))
