"""llama.cpp's ``generation_settings``: the settings of an answer that localspec has."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from localspec.http.models import configured
from localspec.http.samplers import OFF
from localspec.protocol.options import Options

NO_OPTIONS = Options()
RANDOM_SEED = 2**32 - 1
"""stands for a random seed"""
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
) -> Any:
    """Return llama.cpp's ``generation_settings`` for ``options``, completed by the configuration's.

    ``samplers``: those that are at work, in their order; ``fills``: a gap is filled in, at temperature 0
    unless one is set.
    """
    merged = options.over(configured().options)
    if fills and merged.temperature is None:
        merged = replace(merged, temperature=0.0)
    given = {name: getattr(merged, name) for name in DEFAULTS}
    values = {name: DEFAULTS[name] if value is None else value for name, value in given.items()}
    bias = [{"token": token, "bias": added} for token, added in merged.logit_bias or ()]
    return {
        **values,
        "n_predict": values["max_tokens"],
        "logit_bias": bias,
        "samplers": samplers,
        "speculative.types": merged.proposer or "auto",
    }
