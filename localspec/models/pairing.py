"""May this draft model speculate for that target? Exact, compatible, or refused with the reason.

The rule for vocabularies that differ is llama.cpp's (common/speculative.cpp): the same BOS and EOS,
a size difference of at most 128, equal text for every id from 5 on.
"""

from __future__ import annotations

from typing import NamedTuple

from localspec.errors import TokenizerMismatch

MAX_SIZE_DIFFERENCE = 128
FIRST_COMPARED = 5


class Tokens(NamedTuple):
    """What two vocabularies are compared by: the texts of all tokens in order, BOS if it is added, EOS."""

    texts: tuple[bytes, ...]
    bos: int | None = None
    eos: int | None = None


def check_pair(target: Tokens, draft: Tokens) -> str:
    """``"exact"`` or ``"compatible"``; raises :class:`TokenizerMismatch` naming the first difference."""
    if target.texts == draft.texts:
        return "exact"
    sizes = len(target.texts), len(draft.texts)
    if abs(sizes[0] - sizes[1]) > MAX_SIZE_DIFFERENCE:
        raise TokenizerMismatch(
            f"the draft model's vocabulary has {sizes[1]} tokens, the target's {sizes[0]}"
        )
    for name in ("bos", "eos"):
        theirs, ours = getattr(draft, name), getattr(target, name)
        if theirs != ours:
            raise TokenizerMismatch(f"the draft model's {name.upper()} is {theirs}, the target's is {ours}")
    for token in range(FIRST_COMPARED, min(sizes)):
        if target.texts[token] != draft.texts[token]:
            raise TokenizerMismatch(
                f"the draft model's token {token} is {draft.texts[token]!r}, "
                f"the target's is {target.texts[token]!r}"
            )
    return "compatible"
