"""What a proposer offers, and what it is asked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from localspec.speculation.rewriting import Rewriting
from localspec.speculation.sampling import Distribution, Sampler


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens guessed to come next.

    ``q`` holds the distribution each token was drawn from; None means one-hot (lookup, memory, greedy,
    seeded). ``match_length`` is how many tokens of context the guess rests on, where it rests on any.
    ``evidence`` says for every token how sure the proposer was when it chose it, as a small number
    whose meaning is its own: the controller learns how often each number turns out right. ``reason``
    says why there is no draft.
    """

    tokens: tuple[int, ...]
    source: str
    q: tuple[Distribution, ...] | None = None
    match_length: int = 0
    evidence: tuple[int, ...] = ()
    reason: str = ""

    def cut(self, k: int) -> Draft:
        """The first ``k`` tokens."""
        if len(self.tokens) <= k:
            return self
        return replace(self, tokens=self.tokens[:k], q=self.q and self.q[:k], evidence=self.evidence[:k])


NOTHING = Draft((), "none", reason="nothing to offer")


def nothing(reason: str) -> Draft:
    """No draft, and why."""
    return Draft((), "none", reason=reason)


class Gate(Protocol):
    """Stops a draft early. Both are asked before a token is sampled, or stopping would bias the text."""

    def goes_on(self) -> bool:
        """Whether computing one more row is worth its price."""

    def admits(self, evidence: int) -> bool:
        """Whether the token of a row that is this sure is worth verifying; asked once per token."""


class Ledger(NamedTuple):
    """What verification did to a request so far, in seconds as forwards usually take them."""

    won_s: float = 0.0
    """plain forwards for the same tokens would have taken so much longer; negative: they would have been
    faster. The time of drafting is not in it."""
    spent_s: float = 0.0


class Ask(NamedTuple):
    """Draft at most ``k`` tokens after ``context``.

    ``context`` is the request's live list of tokens, newest last; it only ever grows while the
    request runs, so a proposer keeps a cursor into it and does work for new tokens only. The last
    ``answered`` of them are the answer so far; at most ``left`` are to come. ``rewriting`` is what more
    than a few tokens at once may cost later. ``missing`` tokens stand before the newest in the next forward
    in any case; with ``replays`` a draft that is not accepted whole makes it more.
    """

    request: int
    context: list[int]
    k: int
    sampler: Sampler
    answered: int = 0
    left: float = math.inf
    workspace: str | None = None
    remember: bool = True
    ledger: Ledger = Ledger()
    rewriting: Rewriting | None = None
    missing: int = 0
    replays: bool = False
    gate: Gate | None = None


def shared_length(one: Sequence[int], other: Sequence[int]) -> int:
    """How many leading tokens are the same; by bisection, because lists compare fast."""
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
