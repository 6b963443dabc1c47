"""``logit_bias`` as the dialects say it: by tokens or texts, in pairs or as an object; false bans a token."""

from __future__ import annotations

from collections.abc import Iterable

from localspec.client import Client
from localspec.errors import InvalidOptions
from localspec.http.models import model_of

BANNED = -10_000.0
MOST_TEXTS = 256
Strength = float | bool
Said = dict[str, Strength] | list[tuple[int | str, Strength]]


async def bias_of(
    client: Client, said: Said | None, model: str | None
) -> tuple[tuple[int, float], ...] | None:
    """Pairs of tokens and what is added to their logits; of a text all tokens.

    Raises :class:`InvalidOptions`.
    """
    if not said:
        return None
    pairs: Iterable[tuple[int | str, Strength]] = said.items() if isinstance(said, dict) else said
    found: list[tuple[int, float]] = []
    texts = 0
    for token, strength in pairs:
        if strength is True:
            raise InvalidOptions("logit_bias takes a number or false, not true", "Say how much.")
        added = BANNED if strength is False else float(strength)
        # Only the keys of an object cannot be numbers: in a pair, digits in quotes are a text.
        is_key = isinstance(said, dict) and isinstance(token, str) and token.isascii() and token.isdecimal()
        if isinstance(token, int) or is_key:
            found.append((int(token), added))
            continue
        texts += 1
        if texts > MOST_TEXTS:
            told = f"logit_bias has more than {MOST_TEXTS} texts"
            raise InvalidOptions(told, "Give the ids of tokens: `/tokenize` tells them.")
        found += [(each.id, added) for each in await client.tokenize(token, model=model_of(model))]
    return tuple(found)
