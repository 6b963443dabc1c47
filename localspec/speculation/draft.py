"""What a proposer offers, and what it is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from localspec.speculation.sampling import Distribution, Sampler


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens guessed to come next.

    ``q`` holds the distribution each token was drawn from; None means one-hot (lookup, greedy,
    seeded). ``match_length`` is how many tokens of context the guess rests on, where it rests on any.
    """

    tokens: tuple[int, ...]
    source: str
    q: tuple[Distribution, ...] | None = None
    match_length: int = 0

    def cut(self, k: int) -> Draft:
        """The first ``k`` tokens."""
        if len(self.tokens) <= k:
            return self
        return Draft(self.tokens[:k], self.source, self.q and self.q[:k], self.match_length)


NOTHING = Draft((), "none")


class Ask(NamedTuple):
    """Draft at most ``k`` tokens after ``context``.

    ``context`` is the request's live list of tokens, newest last; it only ever grows while the
    request runs, so a proposer keeps a cursor into it and does work for new tokens only.
    """

    request: int
    context: list[int]
    k: int
    sampler: Sampler
