"""llama.cpp's ``generation_settings``: the sampling of an answer, and the defaults of fields not given."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from localspec.http.models import configured
from localspec.http.samplers import OFF
from localspec.protocol.options import Options

NO_OPTIONS = Options()
RANDOM_SEED = 2**32 - 1
"""stands for a random seed"""
NEUTRAL: dict[str, Any] = {
    "dynatemp_range": 0.0,
    "dynatemp_exponent": 1.0,
    "top_n_sigma": -1.0,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.1,
    "typical_p": 1.0,
    "dry_multiplier": 0.0,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_penalty_last_n": -1,
    "dry_sequence_breakers": [],
    "mirostat": 0,
    "mirostat_tau": 5.0,
    "mirostat_eta": 0.1,
    "adaptive_target": -1.0,
    "adaptive_decay": 0.9,
    "stream": False,
    "n_probs": 0,
    "timings_per_token": False,
    "n_keep": 0,
    "n_discard": 0,
    "ignore_eos": False,
    "min_keep": 0,
    "grammar": "",
    "grammar_lazy": False,
    "grammar_triggers": [],
    "preserved_tokens": [],
    "chat_format": "Content-only",
    "reasoning_format": "none",
    "reasoning_in_content": False,
    "generation_prompt": "",
    "post_sampling_probs": False,
    "backend_sampling": False,
    "lora": [],
}
"""settings that localspec lacks, with the values that switch them off, and those that a request leaves out"""
DEFAULTS: dict[str, Any] = {
    "temperature": 0.7,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repeat_penalty": 1.0,
    "repeat_last_n": -1,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "max_tokens": -1,
    "seed": RANDOM_SEED,
    "stop": (),
}
"""values of options that neither the request nor the configuration sets; a model may have its own"""


def generation_settings(
    options: Options = NO_OPTIONS,
    *,
    samplers: tuple[str, ...] = tuple(OFF),
    fills: bool = False,
    **requested: Any,
) -> Any:
    """Return llama.cpp's ``generation_settings`` for ``options``, completed by the configuration's.

    ``samplers``: those that are at work, in their order; ``fills``: a gap is filled in, at temperature 0
    unless one is set; ``requested``: further settings of the request, by llama.cpp's names.
    """
    merged = options.over(configured().options)
    if fills and merged.temperature is None:
        merged = replace(merged, temperature=0.0)
    given = {name: getattr(merged, name) for name in DEFAULTS}
    values = {name: DEFAULTS[name] if value is None else value for name, value in given.items()}
    bias = [{"token": token, "bias": added} for token, added in merged.logit_bias or ()]
    return {
        **NEUTRAL,
        **values,
        "n_predict": values["max_tokens"],
        "logit_bias": bias,
        "samplers": samplers,
        "speculative.types": merged.proposer or "auto",
        **requested,
    }
