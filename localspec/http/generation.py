"""llama.cpp's ``generation_settings``: how tokens were chosen, and what holds where nothing was said."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from localspec.http.models import configured
from localspec.http.samplers import THERE
from localspec.protocol.options import Options

NO_OPTIONS = Options()
RANDOM_SEED = 2**32 - 1
"""stands for: chance decides"""
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
"""llama.cpp's settings that localspec lacks, with the values that switch them off"""
UNSAID: dict[str, Any] = {
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
"""our options, where neither a request nor the configuration says anything; a model may have its own"""


def generation_settings(
    options: Options = NO_OPTIONS, *, stream: bool = False, probabilities: int = 0, fills: bool = False
) -> Any:
    """Return llama.cpp's ``generation_settings`` for ``options``, completed by the configuration's.

    ``probabilities``: the number of alternatives per token; ``fills``: a gap is filled in, at temperature 0
    unless one is set.
    """
    merged = options.over(configured().options)
    if fills and merged.temperature is None:
        merged = replace(merged, temperature=0.0)
    said = {name: getattr(merged, name) for name in UNSAID}
    told = {name: UNSAID[name] if value is None else value for name, value in said.items()}
    bias = [{"token": token, "bias": added} for token, added in merged.logit_bias or ()]
    return {
        **NEUTRAL,
        **told,
        "n_predict": told["max_tokens"],
        "logit_bias": bias,
        "stream": stream,
        "n_probs": probabilities,
        "samplers": list(THERE),
        "speculative.types": merged.proposer or "auto",
        "timings_per_token": False,
    }
