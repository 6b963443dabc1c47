"""May this draft model speculate for that target? Exact, compatible, or refused with the reason.

The rule for different vocabularies is llama.cpp's (common/speculative.cpp): same BOS, size
difference at most 128, equal text for every id from 5 on.
"""

from __future__ import annotations

from collections.abc import Sequence

from localspec.errors import TokenizerMismatch

MAX_SIZE_DIFFERENCE = 128
FIRST_COMPARED = 5


def check_pair(target: Sequence[bytes], draft: Sequence[bytes]) -> str:
    """``"exact"`` or ``"compatible"`` for two vocabularies, given as the texts of their tokens in order.

    Raises :class:`TokenizerMismatch` naming the first token that differs.
    """
    if list(target) == list(draft):
        return "exact"
    if abs(len(target) - len(draft)) > MAX_SIZE_DIFFERENCE:
        raise TokenizerMismatch(
            f"the draft model's vocabulary has {len(draft)} tokens, the target's {len(target)}"
        )
    for token in range(FIRST_COMPARED, min(len(target), len(draft))):
        if target[token] != draft[token]:
            raise TokenizerMismatch(
                f"the draft model's token {token} is {draft[token]!r}, the target's is {target[token]!r}"
            )
    return "compatible"
