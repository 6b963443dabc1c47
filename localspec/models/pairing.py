"""The check that a draft model can draft for a target: exact, compatible, or refused with the reason.

The rule for vocabularies that differ is llama.cpp's (common/speculative.cpp): the same kind, the same BOS
and EOS, a size difference of at most 128, equal text for every id from 5 on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from localspec.errors import TokenizerMismatch
from localspec.models.bounded import shown

Fit = Literal["exact", "compatible"]

FITS: dict[Fit, str] = {"exact": "same vocabulary", "compatible": "compatible vocabularies"}
"""the results, for messages"""
MAX_SIZE_DIFFERENCE = 128
FIRST_COMPARED = 5


class Tokens(NamedTuple):
    """A vocabulary as it is compared: the bytes of all real tokens by id, the number of tokens in a row of
    logits, the tokenizer's kind, BOS if it is added, EOS."""

    texts: Mapping[int, bytes]
    size: int
    kind: str = ""
    bos: int | None = None
    eos: int | None = None


def check_pair(target: Tokens, draft: Tokens) -> Fit:
    """Compare two vocabularies; raise :class:`TokenizerMismatch` naming the first difference."""
    if target.texts == draft.texts:
        return "exact"
    differs = _first_difference(target, draft)
    try:
        check_sizes(target.size, draft.size)
    except TokenizerMismatch as error:
        raise TokenizerMismatch(f"{error.message}{differs and f'; its {differs}'}") from None
    for name in ("kind", "bos", "eos"):
        found, wanted = getattr(draft, name), getattr(target, name)
        if found != wanted:
            label = "kind of tokenizer" if name == "kind" else name.upper()
            raise TokenizerMismatch(f"the draft model's {label} is {found}, the target's is {wanted}")
    if differs:
        raise TokenizerMismatch(f"the draft model's {differs}")
    return "compatible"


def check_sizes(target: int, draft: int) -> None:
    """Raise :class:`TokenizerMismatch` where the numbers of tokens alone rule a pair out."""
    if abs(target - draft) > MAX_SIZE_DIFFERENCE:
        raise TokenizerMismatch(f"the draft model's vocabulary has {draft} tokens, the target's {target}")


def _first_difference(target: Tokens, draft: Tokens) -> str:
    """``token 7 is b'a', the target's is b'b'``; empty where all that are compared are equal."""
    wanted, found = target.texts.get, draft.texts.get
    for token in range(FIRST_COMPARED, min(target.size, draft.size)):
        if wanted(token) != found(token):
            return f"token {token} is {_shown(found(token))}, the target's is {_shown(wanted(token))}"
    return ""


def _shown(text: bytes | None) -> str:
    return "unused" if text is None else shown(text)
