"""``logit_bias`` of the dialects: by tokens or texts, in pairs or as an object; false bans a token."""

from __future__ import annotations

from collections.abc import Iterable

from localspec.client import Client
from localspec.errors import InvalidOptions
from localspec.http.models import model_of

BANNED = -10_000.0
MOST_TEXTS = 256
MOST_DIGITS = 18
"""of a token's id in a key; longer keys are texts"""
Strength = float | bool
Bias = dict[str, Strength] | list[tuple[int | str, Strength]]


async def bias_of(
    client: Client, given: Bias | None, model: str | None
) -> tuple[tuple[int, float], ...] | None:
    """Return pairs of a token and the number added to its logit; of a text, all of its tokens.

    Raises :class:`InvalidOptions`.
    """
    if not given:
        return None
    pairs: Iterable[tuple[int | str, Strength]] = given.items() if isinstance(given, dict) else given
    found: list[tuple[int, float]] = []
    texts = 0
    for token, strength in pairs:
        if strength is True:
            raise InvalidOptions(
                "logit_bias is true for a token",
                "Give the number to add to the token's logit, or false to ban the token.",
            )
        added = BANNED if strength is False else float(strength)
        # Only the keys of an object cannot be numbers: in a pair, digits in quotes are a text.
        is_key = isinstance(given, dict) and isinstance(token, str) and _is_id(token)
        if isinstance(token, int) or is_key:
            found.append((int(token), added))
            continue
        texts += 1
        if texts > MOST_TEXTS:
            message = f"logit_bias has more than {MOST_TEXTS} strings"
            raise InvalidOptions(message, "Give the ids of tokens instead: POST /tokenize returns them.")
        found += [(each.id, added) for each in await client.tokenize(token, model=model_of(model))]
    return tuple(found)


def _is_id(key: str) -> bool:
    return len(key) <= MOST_DIGITS and key.isascii() and key.isdecimal()
