"""The fields of all dialects that choose tokens or limit time, and the options that they stand for.

``samplers`` are llama.cpp's; ``logit_bias`` is by tokens, in pairs or as an object; false bans a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta

from localspec.client import Deadlines, Following
from localspec.errors import InvalidOptions
from localspec.http.endpoint import REMEDY, Refused
from localspec.http.models import model_of, read_config
from localspec.protocol.options import LONGEST_SHOWN, Options, check_value, parse_options

SEEDS = 2**63
CHANCE = (-1, 2**32 - 1)
"""seeds that stand for a random one; the second is the first in 32 bits"""
LEAST_TOP_P = 1e-6
LONGEST_MS = 600_000

Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Ours = dict[str, Any]
"""options by the names of :class:`Options`"""
BANNED = -10_000.0
ANY_OBJECT = {"type": "object"}
MOST_TEXTS = 256
"""texts among tokens: each is a request to the daemon"""
IDS = "Give the ids of tokens instead: POST /tokenize returns them."
Strength = float | bool
Biases = Meta(max_length=4096)
Bias = Annotated[dict[int, Strength], Biases] | Annotated[list[tuple[int, Strength]], Biases]
MOST_NAMES = Meta(max_length=64)
# Here ``localspec/speculation/sampling.py`` fixes the order: temperature before the samplers that cut
# unlikely tokens; in llama.cpp it comes after them.
OFF: dict[str, dict[str, float]] = {
    "penalties": {"repeat_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0},
    "temperature": {"temperature": 1.0},
    "top_k": {"top_k": 0},
    "top_p": {"top_p": 1.0},
    "min_p": {"min_p": 0.0},
}
"""the samplers supported here, in their order, with the option values that switch each off"""
INFILL = "infill"
"""ends a text where the model is not sure how it goes on"""
KNOWN = {name.replace("_", ""): name for name in (*OFF, INFILL)}
KNOWN |= {"temp": "temperature", "nucleus": "top_p"}
"""samplers by their names without capitals, dashes and underscores"""


class Sampling(msgspec.Struct, kw_only=True):
    """Without a seed, or with -1, the seed is random. Without ``repeat_last_n`` penalties look at the whole
    answer, and ``repeat_penalty`` at the prompt, too."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None
    repetition_penalty: float | None = None
    repeat_last_n: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    samplers: Annotated[list[str], MOST_NAMES] | None = None
    seed: Seed | None = None
    stop: str | list[str] | None = None
    logit_bias: Bias | None = None
    localspec: Ours | None = None

    def __post_init__(self) -> None:
        if self.seed in CHANCE:
            self.seed = None
        if self.repeat_penalty is None:
            self.repeat_penalty = self.repetition_penalty
        if self.top_k is not None:
            self.top_k = max(0, self.top_k)  # negative values and 0 both switch it off
        if self.temperature is not None:
            self.temperature = max(0.0, self.temperature)  # negative values are greedy, as in llama.cpp

    def others(self) -> Ours:
        """Return the further options. Raises :class:`InvalidOptions`."""
        return {}


class Format(msgspec.Struct):
    """OpenAI's form of an answer; ``schema`` of its own is that of llama.cpp and of the responses."""

    type: str = "text"
    json_schema: Format | None = None
    schema: dict[str, Any] | None = None

    def options(self) -> Ours:
        """Return the options that it stands for. Raises :class:`InvalidOptions`."""
        if self.type == "text":
            return {}
        if self.type not in ("json_object", "json_schema"):
            message = f"the format {self.type[:LONGEST_SHOWN]!r} is not supported"
            raise InvalidOptions(message, "Give text, json_object or json_schema.")
        schema = (self.json_schema or self).schema
        if schema is None and self.type == "json_schema":
            raise InvalidOptions("the format json_schema has no schema", "Give a schema, or json_object.")
        return {"schema": ANY_OBJECT if schema is None else schema}


class OutputConfig(msgspec.Struct):
    effort: str | None = None
    format: Format | None = None


class TimedSampling(Sampling, kw_only=True):
    """Fields that all dialects but Ollama's share; limits of time are in ms (0 and less: none)."""

    model: str | None = None
    stream: bool | None = None
    n: int | None = None
    n_predict: int | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    t_max_prompt_ms: float | None = None
    t_max_predict_ms: float | None = None
    timings_per_token: bool | None = None
    return_progress: bool | None = None
    response_format: Format | None = None
    json_schema: dict[str, Any] | None = None
    grammar: str | None = None

    def others(self) -> Ours:
        longest = length_of(self.n_predict, self.max_completion_tokens, self.max_tokens)
        return {"model": self.model, "max_tokens": longest, **self.limits()}

    def limits(self) -> Ours:
        """Return the options for the form of the text. Raises :class:`InvalidOptions`."""
        syntax = "gbnf" if self.grammar else None
        own = {"schema": self.json_schema or None, "grammar": self.grammar or None, "grammar_syntax": syntax}
        return own if self.response_format is None else own | self.response_format.options()

    def generating(self) -> Following:
        """Return the deadlines; by its ``progress`` a stream begins once the prompt is accepted."""
        return {**self.deadlines(), "progress": bool(self.stream)}

    def deadlines(self) -> Deadlines:
        given = {"max_prompt_ms": self.t_max_prompt_ms, "max_predict_ms": self.t_max_predict_ms}
        limits = {name: max(1, min(round(ms), LONGEST_MS)) for name, ms in given.items() if ms and ms > 0}
        return cast(Deadlines, limits)


SAMPLED = tuple(
    name
    for name in Sampling.__struct_fields__
    if name in Options.__struct_fields__ and name != "logit_bias"  # has its own form
)
REFUSED: Refused = {
    **dict.fromkeys(("ignore_eos", "use_beam_search", "post_sampling_probs", "prompt_logprobs"), (False,)),
    **dict.fromkeys(("include_stop_str_in_output", "return_tokens_as_token_ids"), (False,)),
    **dict.fromkeys(("guided_regex", "guided_grammar", "structural_tag"), ("",)),
    **dict.fromkeys(("guided_json", "structured_outputs"), ({},)),
    **dict.fromkeys(("lora", "guided_choice", "bad_words", "preserved_tokens", "logits_processors"), ([],)),
    **dict.fromkeys(("stop_token_ids", "allowed_token_ids"), ([],)),
    **dict.fromkeys(("mirostat", "dry_multiplier", "xtc_probability", "min_tokens"), (0,)),
    **dict.fromkeys(("typical_p", "tfs_z", "length_penalty"), (1,)),
    **dict.fromkeys(("adaptive_target", "reasoning_budget_tokens", "thinking_budget_tokens"), (-1,)),
    **dict.fromkeys(("top_n_sigma", "dynatemp_range"), (-1, 0)),
    **dict.fromkeys(("thinking_token_budget", "truncate_prompt_tokens"), ()),
    "min_keep": (0, 1),
    "reasoning_format": ("none", "auto", "deepseek"),
    "skip_special_tokens": (True,),
}
"""fields of llama.cpp's and vLLM's servers that change an answer, unless they have one of these values"""
UNLIMITED: Refused = {"grammar": ("",), "json_schema": ({},), "response_format": ({"type": "text"},)}


def options_of(sampling: Sampling, names: Mapping[str, str] = MappingProxyType({}), **others: Any) -> Options:
    """Return the options of a request. ``others`` are further values by the names of :class:`Options`, None
    for those that were not given; those of the field ``localspec`` take precedence. ``names`` are the
    dialect's names of options, for error messages. Raises :class:`InvalidOptions`."""
    others, own = sampling.others() | others, sampling.localspec or {}
    given = {name: getattr(sampling, name) for name in SAMPLED} | others
    given |= {"model": model_of(others.get("model")), "logit_bias": _bias(sampling.logit_bias)}
    values: dict[str, Any] = {"overflow": read_config().options.overflow or "refuse"}
    values |= {name: value for name, value in given.items() if value is not None}
    # Samplers that are not supported (DRY, XTC, …) are ignored.
    unlisted = OFF.keys() - active(sampling.samplers)
    off = {field: none for name in unlisted for field, none in OFF[name].items()}
    if "temperature" not in values:
        off.pop("temperature", None)  # without one the model's own holds, whatever the samplers
    values |= off
    if (stop := values.get("stop")) is not None:
        values["stop"] = [text for text in ([stop] if isinstance(stop, str) else stop) if text]
    if "top_p" in values:
        values["top_p"] = max(values["top_p"], LEAST_TOP_P)  # 0 is the most probable token alone, as this is
    if "seed" in values:
        values["seed"] %= SEEDS
    values |= own
    for name, value in values.items():
        if name in Options.__struct_fields__:
            shown = f"localspec.{name}" if name in own else names.get(name, name)
            check_value(Options, name, value, said=shown, remedy=REMEDY, strict=True)
    return parse_options(values)


def length_of(*limits: int | None) -> int | None:
    """Return the first limit that is given, in tokens; None if there is none or it is negative."""
    longest = next((each for each in limits if each is not None), -1)
    return None if longest < 0 else longest


def count_of(given: int | None, most: int, name: str) -> int:
    """Return the number of answers, 1 by default. Raises :class:`InvalidOptions` if not in 1 to ``most``."""
    count = 1 if given is None else given
    if not 1 <= count <= most:
        remedy = f"Set {name} to at most {most}; send several requests for more."
        raise InvalidOptions(f"{name} takes a whole number from 1 to {most}, not {count}", remedy)
    return count


def active(given: list[str] | None) -> tuple[str, ...]:
    """Return the active samplers, in the order in which they run here; all supported ones if None."""
    plain = (name.lower().replace("-", "").replace("_", "") for name in given or [])
    names = [*OFF] if given is None else [KNOWN[name] for name in plain if name in KNOWN]
    return tuple(name for name in (*OFF, INFILL) if name in names)


def _bias(given: Bias | None) -> tuple[tuple[int, float], ...] | None:
    """Return pairs of a token and the number added to its logit. Raises :class:`InvalidOptions`."""
    if not given:
        return None
    pairs = list(given.items() if isinstance(given, dict) else given)
    if any(strength is True for _, strength in pairs):
        remedy = "Give the number to add to the token's logit, or false to ban the token."
        raise InvalidOptions("logit_bias is true for a token", remedy)
    return tuple((token, BANNED if strength is False else float(strength)) for token, strength in pairs)
