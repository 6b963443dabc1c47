"""The proposers of an engine by name, and what happens when one fails."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from operator import index
from typing import NamedTuple

from localspec.config import EngineConfig
from localspec.engine.learning import Learning
from localspec.engine.sequence import Sequence
from localspec.errors import InvalidOptions
from localspec.speculation.controller import Controller
from localspec.speculation.draft import NOTHING, Ask, Draft, nothing
from localspec.speculation.proposer import Nothing, Proposer
from localspec.speculation.rules import Ema, Fixed

FALLBACK = {
    "auto": "prompt-lookup",
    "draft": "prompt-lookup",
    "memory": "prompt-lookup",
    "prompt-lookup": "none",
}
DEFAULT_K = 4
"""of a rule that does not find its own length"""
LONGEST_K = 20


class Offer(NamedTuple):
    """A draft and the seconds it took."""

    draft: Draft
    seconds: float


class Limits(NamedTuple):
    """What the engine says of all drafts."""

    vocabulary_size: int
    rollback: Callable[[int], int | None]
    """of a sequence of the target; see :meth:`Backend.rollback`"""
    replays: bool
    """see :class:`Capabilities`"""
    crowd: int
    """so many sequences at once, and nobody drafts; 0: never"""


class Proposers:
    """Asks each sequence's proposer, all sequences of one proposer together.

    ``plain`` draft as many tokens as they are asked for; ``steered`` find the length themselves, and
    serve the requests that do not ask for one.
    """

    def __init__(self, plain: Seq[Proposer], steered: Seq[Proposer], limits: Limits) -> None:
        self._plain: Mapping[str, Proposer] = {proposer.name: proposer for proposer in plain}
        self._steered: Mapping[str, Proposer] = {proposer.name: proposer for proposer in steered}
        self._limits = limits

    def check(self, name: str) -> None:
        """Raises :class:`InvalidOptions` for a proposer that this engine does not have."""
        known = self._plain.keys() | self._steered.keys()
        if name not in known:
            remedy = REMEDIES.get(name)
            have = ", ".join(sorted(known))
            raise InvalidOptions(f"there is no proposer {name!r} here; there are: {have}", remedy)

    def propose(self, sequences: Seq[Sequence]) -> list[Offer]:
        """An offer for every sequence, cut to what is of use; a failing proposer is replaced at once."""
        if 0 < self._limits.crowd <= len(sequences):
            crowded = nothing(f"{self._limits.crowd} requests or more decode together")
            return [Offer(crowded, 0.0) for _ in sequences]
        offers: dict[int, Offer] = {}
        groups: dict[Proposer, list[Sequence]] = {}
        for sequence in sequences:
            groups.setdefault(self._of(sequence), []).append(sequence)
        for group in groups.values():
            offers |= self._ask(group)
        return [offers[s.id] for s in sequences]

    def _of(self, sequence: Sequence) -> Proposer:
        """Who drafts for a request: a rule that finds the length, or as asked."""
        name = sequence.proposer
        steered = self._steered.get(name)
        if steered is not None and (sequence.settings.k is None or name not in self._plain):
            return steered
        return self._plain[name]

    def _length(self, sequence: Sequence) -> int:
        if sequence.settings.k is not None:
            return sequence.settings.k
        finds_length = isinstance(self._steered.get(sequence.proposer), Controller)
        return LONGEST_K if finds_length else DEFAULT_K

    def _ask_of(self, sequence: Sequence) -> Ask:
        rollback, replays = self._limits.rollback(sequence.slot), self._limits.replays
        if rollback is not None and replays:
            # The first token of a forward need not be taken back with its drafts: it would be fed again.
            rollback, replays = rollback + 1, False
        return sequence.ask(self._length(sequence), rollback)._replace(replays=replays)

    def _ask(self, sequences: Seq[Sequence]) -> dict[int, Offer]:
        """The sequences have one proposer."""
        proposer = self._of(sequences[0])
        asks = [self._ask_of(s) for s in sequences]
        started = time.perf_counter()
        try:
            drafts = proposer.propose(asks)
            clean = [self._clean(draft, ask.k) for draft, ask in zip(drafts, asks, strict=True)]
        except Exception as error:
            # Whatever a proposer raises, native code included, must cost speed only.
            to = FALLBACK.get(sequences[0].proposer, "none")
            for sequence in sequences:
                sequence.degrade(to, f"{type(error).__name__}: {error}")
            return self._ask(sequences)
        seconds = (time.perf_counter() - started) / len(sequences)
        return {s.id: Offer(draft, seconds) for s, draft in zip(sequences, clean, strict=True)}

    def _clean(self, draft: Draft, k: int) -> Draft:
        """At most ``k`` tokens, and none that the target does not have. Raises for what is no draft."""
        if draft.q is not None and len(draft.q) != len(draft.tokens):
            raise ValueError(f"{len(draft.tokens)} tokens with {len(draft.q)} distributions")
        size = self._limits.vocabulary_size
        wrong = next((i for i, t in enumerate(draft.tokens) if not 0 <= index(t) < size), k)
        cut = draft.cut(min(k, wrong))
        return cut if cut.tokens or cut.reason else NOTHING

    def observe(self, sequence: Sequence, draft: Draft, accepted: int) -> None:
        """Tell the proposer how its draft fared."""
        if not draft.tokens:
            return
        try:
            self._of(sequence).observe(sequence.id, draft, accepted)
        except Exception as error:
            # As in a proposal: it costs the request this proposer.
            sequence.degrade(FALLBACK.get(sequence.proposer, "none"), f"{type(error).__name__}: {error}")

    def stop(self, sequence: Sequence) -> None:
        """The request has ended. Nobody is spared: a degraded request had several proposers."""
        for proposer in (*self._plain.values(), *self._steered.values()):
            # The request has its text; a proposer that cannot forget it is no reason to fail.
            with contextlib.suppress(Exception):
                proposer.stop(sequence.id)

    def recover(self) -> None:
        """A KeyboardInterrupt ended a step: free what no request has."""
        for proposer in self._plain.values():
            with contextlib.suppress(Exception):
                proposer.recover()


REMEDIES = {
    "draft": "Load the model with --draft.",
    "memory": "Run `localspec config set memory true`.",
}


def assemble(
    members: Seq[Proposer],
    extra: Seq[Proposer],
    config: EngineConfig,
    learning: Learning,
    limits: Limits,
) -> Proposers:
    """An engine's own proposers, ``members``, steered as the configuration says, and ``extra`` ones,
    which take the place of those whose names they have."""
    mine = {proposer.name: proposer for proposer in extra}
    members = [mine.get(member.name, member) for member in members]
    steered: list[Proposer]
    if config.controller == "cost":
        costs, calibration = learning.costs, learning.calibration
        steered = [Controller(members, costs, calibration)]
        own = [member for member in members if member.name not in mine]
        steered += [Controller([member], costs, calibration, name=member.name) for member in own]
    elif config.controller == "ema":
        steered = [Ema(members, LONGEST_K)]
    else:
        steered = [Fixed(members, LONGEST_K)]
    return Proposers([Nothing(), *members, *extra], steered, limits)
