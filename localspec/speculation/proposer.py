"""The contract of proposers: sources of drafts, which get asks and answer with drafts."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
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
    why there is no draft. A forward with it is ``padding`` tokens wider: that width is cheaper.
    """

    tokens: tuple[int, ...]
    source: str
    q: tuple[Distribution, ...] | None = None
    evidence: tuple[int, ...] = ()
    reason: str = ""
    padding: int = 0

    def cut(self, k: int) -> Draft:
        if len(self.tokens) <= k:
            return self
        return replace(self, tokens=self.tokens[:k], q=self.q and self.q[:k], evidence=self.evidence[:k])


NOTHING = Draft((), "none", reason="no draft found")


def nothing(reason: str) -> Draft:
    return Draft((), "none", reason=reason)


class DraftGate(Protocol):
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
    gate: DraftGate | None = None


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


class Proposer(ABC):
    """A source of drafts: guesses the target's next tokens. One proposer serves all requests of an engine. A
    wrong guess costs time, never correctness. After an exception the request goes on without this
    proposer."""

    name: str
    costly: bool = False
    """True if drafting takes time, so that `propose` is called only where a draft is likely to be used"""
    prior: Sequence[float] = (0.7,)
    """probability that a token is right, by its evidence, before anything is learnt; the last one repeats"""

    @property
    def learnt_as(self) -> str:
        """The name of what is learnt of its accuracy; of another draft model, something else is."""
        return self.name

    @abstractmethod
    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """Return a draft for every ask, in their order; an empty one where there is nothing to offer."""

    def price(self, ask: Ask, k: int) -> float:
        """The seconds that a draft of ``k`` tokens would take; 0 where that is negligible."""
        return 0.0

    def observe(self, request: int, draft: Draft, accepted: int) -> None:  # noqa: B027
        """Note that the first ``accepted`` tokens of ``draft`` were accepted, and no more."""

    def stop(self, request: int) -> None:  # noqa: B027
        """Drop the state of a request that has ended."""


PLAIN_DECODING = nothing("proposer is none")


class PlainDecoding(Proposer):
    name = "none"

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [PLAIN_DECODING for _ in asks]
