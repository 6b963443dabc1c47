"""Probabilities of tokens in the formats of the dialects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any

from localspec.protocol.results import Likely, Token


def entries(text: str, tokens: Iterable[Token]) -> Iterator[dict[str, Any]]:
    """Yield an entry for each token of a text: piece, log-probability and the most probable tokens."""
    at = 0
    for token in tokens:
        piece = text[at : at + token.chars]
        at += token.chars
        yield {
            "id": token.id,
            "token": piece,
            "logprob": token.logprob,
            "bytes": list(piece.encode()),
            "top_logprobs": [*map(_likely, token.top)],
        }


def columns(text: str, tokens: Iterable[Token], offset: int, top: int) -> dict[str, Any]:
    """Return the entries as columns for OpenAI's completions; ``offset``: the text's start in the answer."""
    each = list(entries(text, tokens))
    starts = accumulate((len(one["token"]) for one in each[:-1]), initial=offset)
    likely = [{one["token"]: one["logprob"] for one in entry["top_logprobs"]} for entry in each]
    return {
        "tokens": [one["token"] for one in each],
        "token_logprobs": [one["logprob"] for one in each],
        "top_logprobs": likely if top else None,
        "text_offset": list(starts) if each else [],
    }


def mean(tokens: Iterable[Token]) -> float:
    """Return the mean log-probability of an answer's tokens; minus infinity if it has none."""
    known = [token.logprob for token in tokens if token.logprob is not None]
    return sum(known) / len(known) if known else float("-inf")


def _likely(likely: Likely) -> dict[str, Any]:
    return {
        "id": likely.id,
        "token": likely.piece.decode("utf-8", "replace"),
        "logprob": likely.logprob,
        "bytes": list(likely.piece),
    }
