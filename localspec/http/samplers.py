"""llama.cpp's ``samplers``: which of them choose a token, and in which order.

Those of ours come as ``localspec/speculation/sampling.py`` has them, so that the temperature is before what
cuts the unlikely, and there after it. Both orders are taken; any other would be another answer.
"""

from __future__ import annotations

from localspec.errors import InvalidOptions

OFF: dict[str, dict[str, float]] = {
    "penalties": {"repeat_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0},
    "temperature": {"temperature": 1.0},
    "top_k": {"top_k": 0},
    "top_p": {"top_p": 1.0},
    "min_p": {"min_p": 0.0},
}
"""the samplers that there are here, in their order, and what they are told to do nothing"""
THERE = ("penalties", "top_k", "top_p", "min_p", "temperature")
INFILL = "infill"
"""ends a text where the model is not sure of it"""
LETTERS = {"e": "penalties", "t": "temperature", "k": "topk", "p": "topp", "m": "minp", "i": INFILL}
KNOWN = {name.replace("_", ""): name for name in (*OFF, INFILL)}
KNOWN |= {"temp": "temperature", "nucleus": "top_p"}
"""by their names without capitals, dashes and underscores"""


def names_of(said: list[str] | str | None) -> list[str]:
    """Those that are known here, by our names; in a text they are letters."""
    listed = [LETTERS.get(letter, letter) for letter in said] if isinstance(said, str) else said or []
    plain = (name.lower().replace("-", "").replace("_", "") for name in listed)
    return [KNOWN[name] for name in plain if name in KNOWN]


def left_out(said: list[str] | str | None) -> dict[str, float]:
    """What is to be told for those that are not named to do nothing; if none was to be named all do what
    they do.

    Raises :class:`InvalidOptions` for another order, and for repetitions. The neutral of what is not here
    (DRY, XTC, …) does nothing, wherever it is.
    """
    if said is None:
        return {}
    ours = [name for name in names_of(said) if name in OFF]
    if ours not in ([name for name in order if name in ours] for order in (tuple(OFF), THERE)):
        raise InvalidOptions(
            "samplers in this order, or more than once, are not supported",
            f"Name them in the order {', '.join(THERE)}, or leave samplers out.",
        )
    return {field: none for name, fields in OFF.items() if name not in ours for field, none in fields.items()}
