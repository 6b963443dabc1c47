"""Drafts, and the asks that a proposer drafts for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from localspec.speculation.sampling import Distribution, Sampler


@dataclass(frozen=True, slots=True)
class Draft:
    """The tokens that a proposer guesses to come next.

    ``q`` holds the distribution each token was drawn from; None means one-hot (lookup, memory, greedy,
    seeded). ``evidence`` holds a small integer per token for how sure the proposer was of it. Its scale is
    the proposer's own: the controller learns how often tokens with each number are right. ``reason`` says
    why there is no draft.
    """

    tokens: tuple[int, ...]
    source: str
    q: tuple[Distribution, ...] | None = None
    evidence: tuple[int, ...] = ()
    reason: str = ""

    def cut(self, k: int) -> Draft:
        """Return the draft's first ``k`` tokens."""
        if len(self.tokens) <= k:
            return self
        return replace(self, tokens=self.tokens[:k], q=self.q and self.q[:k], evidence=self.evidence[:k])


NOTHING = Draft((), "none", reason="nothing to offer")


def nothing(reason: str) -> Draft:
    """Return an empty draft with its reason."""
    return Draft((), "none", reason=reason)


class Gate(Protocol):
    """Stops a draft early. Both methods are called before a token is sampled: later would bias the text."""

    def goes_on(self) -> bool:
        """Return True if one more row is worth its price."""

    def admits(self, evidence: int) -> bool:
        """Return True if a token with this evidence is worth verifying; called once per token."""


class Savings(NamedTuple):
    """The effect of verification on a request so far, in seconds that such forwards usually take."""

    saved_s: float = 0.0
    """seconds that plain forwards for the same tokens would have taken more; negative: less. The time of
    drafting is not in it."""
    spent_s: float = 0.0
    """seconds of its rounds' forwards"""


class Ask(NamedTuple):
    """A call for a draft of at most ``k`` tokens after ``context``.

    ``context`` is the request's live list of tokens, newest last. It only grows while the request runs, so
    a proposer can keep a cursor into it and process new tokens only. The last ``answered`` of them are the
    answer so far; at most ``left`` are to come. The next forward feeds ``missing`` tokens before the newest
    one, with or without a draft; with ``replays``, a draft that is not accepted in full adds to them.
    """

    request: int
    context: list[int]
    k: int
    sampler: Sampler
    answered: int = 0
    left: float = math.inf
    workspace: str | None = None
    remember: bool = True
    savings: Savings = Savings()
    missing: int = 0
    replays: bool = False
    gate: Gate | None = None


def shared_length(one: Sequence[int], other: Sequence[int]) -> int:
    """The number of leading tokens that are equal; by bisection, because lists compare fast."""
    low, high = 0, min(len(one), len(other))
    a, b = list(one[:high]), list(other[:high])
    if a == b:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low
