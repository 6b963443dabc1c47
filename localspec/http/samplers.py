"""llama.cpp's ``samplers``: the samplers that choose a token, in their order.

Here ``localspec/speculation/sampling.py`` fixes the order: temperature before the samplers that cut unlikely
tokens; in llama.cpp it comes after them. Both orders are accepted; any other would give another answer.
"""

from __future__ import annotations

from localspec.errors import InvalidOptions
from localspec.protocol.options import LONGEST_SHOWN

OFF: dict[str, dict[str, float]] = {
    "penalties": {"repeat_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0},
    "temperature": {"temperature": 1.0},
    "top_k": {"top_k": 0},
    "top_p": {"top_p": 1.0},
    "min_p": {"min_p": 0.0},
}
"""the samplers supported here, in their order, with the option values that switch each off"""
ORDER = ("penalties", "top_k", "top_p", "min_p", "temperature")
"""llama.cpp's order of them"""
INFILL = "infill"
"""ends a text where the model is not sure how it goes on"""
LETTERS = {"e": "penalties", "t": "temperature", "k": "topk", "p": "topp", "m": "minp", "i": INFILL}
KNOWN = {name.replace("_", ""): name for name in (*OFF, INFILL)}
KNOWN |= {"temp": "temperature", "nucleus": "top_p"}
"""samplers by their names without capitals, dashes and underscores"""


def names_of(given: list[str] | str | None) -> list[str]:
    """Return the samplers of a request that are supported, by our names; a text has a letter for each."""
    listed = [LETTERS.get(letter, letter) for letter in given] if isinstance(given, str) else given or []
    plain = (name.lower().replace("-", "").replace("_", "") for name in listed)
    return [KNOWN[name] for name in plain if name in KNOWN]


def active(given: list[str] | str | None) -> tuple[str, ...]:
    """Return the active samplers, in the order in which they run here; all supported ones if None."""
    names = [*OFF] if given is None else names_of(given)
    return tuple(name for name in (*OFF, INFILL) if name in names)


def left_out(given: list[str] | str | None) -> dict[str, float]:
    """Return the option values that switch off the samplers not listed; none if there is no list.

    Raises :class:`InvalidOptions` for another order, and for repetitions. Samplers that are not supported
    (DRY, XTC, …) are ignored, wherever they stand.
    """
    if given is None:
        return {}
    ours = [name for name in names_of(given) if name in OFF]
    if ours not in ([name for name in order if name in ours] for order in (tuple(OFF), ORDER)):
        raise InvalidOptions(
            f"samplers in the order {', '.join(ours)[:LONGEST_SHOWN]} are not supported",
            f"Name each once, in the order {', '.join(ORDER)}, or leave samplers out.",
        )
    return {field: none for name, fields in OFF.items() if name not in ours for field, none in fields.items()}
