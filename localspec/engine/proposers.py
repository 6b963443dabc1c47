"""The proposers of an engine by name, and the replacement of one that fails."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from operator import index
from typing import NamedTuple

from localspec.backends.sizes import WIDEST_ROUND
from localspec.engine.learning import Learning
from localspec.engine.sequence import Sequence
from localspec.errors import InvalidOptions
from localspec.protocol.proposer_kinds import AUTO, KINDS, LOOKUP, NONE, Need, names
from localspec.speculation.controller import Controller
from localspec.speculation.draft import NOTHING, Ask, Draft, nothing
from localspec.speculation.proposer import PLAIN_DECODING, Nothing, Proposer

DEFAULT_K = 4
"""most draft tokens a round of a proposer that no controller serves"""
LONGEST_K = WIDEST_ROUND - 1
"""most draft tokens a round that a controller serves"""
EXACT_ALONE = nothing("exactness = strict, and no wider forward is known to round as plain decoding does")


class Offer(NamedTuple):
    """A draft and the seconds that it took."""

    draft: Draft
    seconds: float


PLAIN, ALONE = Offer(PLAIN_DECODING, 0.0), Offer(EXACT_ALONE, 0.0)


class Limits(NamedTuple):
    """The engine's limits for all drafts."""

    vocabulary_size: int
    rollback: Callable[[int], int | None]
    """of a sequence of the target: see :meth:`Backend.rollback`"""
    replays: bool
    """see :class:`Capabilities`"""
    widest: Callable[[Sequence], int]
    """the most tokens that a round of a sequence may feed"""


class Kit(NamedTuple):
    """The proposers for requests with one draft model, or without, by their names: ``plain`` ones draft as
    many tokens as requested; ``controllers`` choose the length, and serve requests that do not set one."""

    plain: Mapping[str, Proposer]
    controllers: Mapping[str, Controller]


class Proposers:
    """Calls each sequence's proposer, for all sequences of one proposer together.

    ``members`` are the engine's own proposers that need no draft model; ``extra`` ones replace those of the
    same names.
    """

    def __init__(
        self, members: Seq[Proposer], extra: Seq[Proposer], learning: Learning, limits: Limits
    ) -> None:
        self._members, self._extra, self._learning, self._limits = members, extra, learning, limits
        self._kits: dict[int | None, Kit] = {}
        self.add(None, ())

    def add(self, draft: int | None, drafting: Seq[Proposer]) -> None:
        """Serve requests with this draft model, also by the proposers ``drafting``, which need it."""
        mine = {proposer.name: proposer for proposer in self._extra}
        members = [mine.get(member.name, member) for member in (*self._members, *drafting)]
        own = [[member] for member in members if member.name not in mine]
        controllers = {
            name: Controller(among, self._learning.costs, self._learning.calibration, name=name)
            for name, among in [(AUTO, members), *((each[0].name, each) for each in own)]
        }
        plain = {proposer.name: proposer for proposer in (Nothing(), *members, *self._extra)}
        self._kits[draft] = Kit(plain, controllers)

    def drop(self, draft: int) -> None:
        """Forget a draft model; no request with it may be asked for drafts."""
        del self._kits[draft]

    def check(self, name: str, draft: int | None) -> None:
        """Raise :class:`InvalidOptions` for a proposer that no request with this draft model can have."""
        known = self._kits[draft].plain.keys() | self._kits[draft].controllers.keys()
        if name not in known:
            remedy = next((REMEDIES[kind.needs] for kind in KINDS if kind.name == name), None)
            have = ", ".join(sorted(known))
            raise InvalidOptions(f"this model has no proposer {name!r}; available: {have}", remedy)

    def propose(self, sequences: Seq[Sequence]) -> list[Offer]:
        """Return an offer for every sequence, cut to the length that is of use; a proposer that fails is
        replaced at once."""
        offers: dict[int, Offer] = {}
        groups: dict[Proposer, list[Sequence]] = {}
        for sequence in sequences:
            if sequence.proposer == NONE:
                offers[sequence.id] = PLAIN
            elif self._limits.widest(sequence) > 1:
                groups.setdefault(self._of(sequence), []).append(sequence)
            else:
                offers[sequence.id] = ALONE
        for group in groups.values():
            offers |= self._ask(group)
        return [offers[s.id] for s in sequences]

    def _of(self, sequence: Sequence) -> Proposer:
        """The proposer of a request: a controller if the request sets no length, or a plain one."""
        name, kit = sequence.proposer, self._kits[sequence.draft]
        controller = kit.controllers.get(name)
        if controller is not None and (sequence.settings.k is None or name not in kit.plain):
            return controller
        return kit.plain[name]

    def _length(self, sequence: Sequence) -> int:
        if sequence.settings.k is not None:
            return sequence.settings.k
        return LONGEST_K if sequence.proposer in self._kits[sequence.draft].controllers else DEFAULT_K

    def _ask_of(self, sequence: Sequence) -> Ask:
        rollback, replays = self._limits.rollback(sequence.slot), self._limits.replays
        if rollback is not None and replays:
            # If the first token of a forward is taken back with its drafts, a replay feeds it again: it
            # need not count.
            rollback, replays = rollback + 1, False
        ask = sequence.ask(self._length(sequence), rollback)
        room = self._limits.widest(sequence) - 1 - ask.missing
        return ask._replace(k=max(0, min(ask.k, room)), replays=replays)

    def _ask(self, sequences: Seq[Sequence]) -> dict[int, Offer]:
        """Return the offers for ``sequences``, which all have the same proposer."""
        proposer = self._of(sequences[0])
        asks = [self._ask_of(s) for s in sequences]
        started = time.perf_counter()
        try:
            drafts = proposer.propose(asks)
            clean = [self._clean(draft, ask.k) for draft, ask in zip(drafts, asks, strict=True)]
        except Exception as error:
            # No exception of a proposer, native code included, may cost more than speed.
            to = fallback_of(sequences[0].proposer)
            for sequence in sequences:
                sequence.degrade(to, f"{type(error).__name__}: {error}")
            return self._ask(sequences)
        seconds = (time.perf_counter() - started) / len(sequences)
        return {s.id: Offer(draft, seconds) for s, draft in zip(sequences, clean, strict=True)}

    def _clean(self, draft: Draft, k: int) -> Draft:
        """Return at most ``k`` tokens of the draft, and none beyond the target's vocabulary. Raises an
        exception for an invalid draft."""
        if draft.q is not None and len(draft.q) != len(draft.tokens):
            raise ValueError(f"a draft of {len(draft.tokens)} tokens has {len(draft.q)} distributions")
        size = self._limits.vocabulary_size
        wrong = next((i for i, t in enumerate(draft.tokens) if not 0 <= index(t) < size), k)
        cut = draft.cut(min(k, wrong))
        return cut if cut.tokens or cut.reason else NOTHING

    def observe(self, sequence: Sequence, draft: Draft, accepted: int) -> None:
        """Report to the proposer how many tokens of its draft were accepted."""
        try:
            self._of(sequence).observe(sequence.id, draft, accepted)
        except Exception as error:
            # As in a proposal: the request goes on without this proposer.
            sequence.degrade(fallback_of(sequence.proposer), f"{type(error).__name__}: {error}")

    def stop(self, sequence: Sequence) -> None:
        """Report to all proposers that the request has ended: after a failure it had several."""
        kit = self._kits.get(sequence.draft)
        for proposer in (*kit.plain.values(), *kit.controllers.values()) if kit is not None else ():
            # The request has its text: an error of a proposer must not spoil that.
            with contextlib.suppress(Exception):
                proposer.stop(sequence.id)


REMEDIES: dict[Need, str | None] = {
    "nothing": None,
    "draft model": "Choose a draft model: `--draft NAME`.",
    "memory": "Run `localspec config set memory true`.",
    "target": "Choose a model that has it, or another proposer with --proposer.",
}
"""by what the proposer needs that is missing"""


def fallback_of(name: str) -> str:
    """The proposer that takes the place of one that failed: prompt lookup, which needs nothing, or none."""
    return LOOKUP.name if name in names() and name not in (LOOKUP.name, NONE) else NONE
