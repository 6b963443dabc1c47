"""The number of draft tokens to verify for the most tokens per second."""

from __future__ import annotations

import math
from collections.abc import Sequence

DOUBT = 0.1
"""least probability that a draft does not pay: a text may leave what it copies all at once, though averages
over earlier texts promise nearly certain tokens"""


def best_length(
    survival: Sequence[float], seconds: Sequence[float], stake: float = math.inf
) -> tuple[int, float]:
    """Return the number of draft tokens with the most expected tokens per second, and that rate.

    ``survival[i]`` is the probability that draft token i is accepted, ``seconds[k]`` the time of a round with
    k of them; one more token comes out in any case. A length whose expected loss is more than ``stake``
    seconds is left out: with too few tokens accepted, the round takes longer than plain decoding would.
    """
    expected, plain = 1.0, seconds[0]
    best, best_rate = 0, 1.0 / plain
    for k, (alive, cost) in enumerate(zip(survival, seconds[1:], strict=False), 1):
        expected += alive
        if expected > best_rate * cost:
            extra = cost - seconds[0]
            even = max(math.ceil(extra / plain), 1)
            lost = 1.0 - survival[even - 1] if even <= k else 1.0
            if max(lost, DOUBT) * extra <= stake:
                best, best_rate = k, expected / cost
    return best, best_rate


def with_replay(
    survival: Sequence[float], seconds: Sequence[float], again: Sequence[float]
) -> Sequence[float]:
    """Return ``seconds`` plus the expected cost of a draft that is not accepted in full: the newest token and
    the accepted ones are fed again. ``again[n]`` is that cost for n tokens; empty: none."""
    if not again:
        return seconds
    priced, expected = [seconds[0]], 1.0
    for alive, cost in zip(survival, seconds[1:], strict=False):
        priced.append(cost + (1.0 - alive) * again[min(round(expected), len(again) - 1)])
        expected += alive
    return priced
