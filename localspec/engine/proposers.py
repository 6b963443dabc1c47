"""The proposers of an engine by name: how they are made, called, and replaced if they fail.

A factory returns None where what its proposer needs is missing. Their names are in
:mod:`localspec.protocol.proposer_kinds`.
"""

from __future__ import annotations

import contextlib
import pkgutil
import time
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from operator import index
from typing import NamedTuple

from localspec.backends.base import Backend
from localspec.backends.sizes import WIDEST_ROUND
from localspec.engine.exactness import widest_round
from localspec.engine.learning import Learning
from localspec.engine.sequence import Sequence
from localspec.errors import InvalidOptions
from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.proposer_kinds import AUTO, DRAFT, KINDS, LOOKUP, NONE, Need, ProposerKind, meanings
from localspec.speculation.controller import Controller
from localspec.speculation.draft import NOTHING, Ask, Draft, nothing
from localspec.speculation.draft_model import DraftModel
from localspec.speculation.lookup import PromptLookup
from localspec.speculation.memory import MemoryRecall
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


class Parts(NamedTuple):
    """The parts of an engine that proposers are made of."""

    target: Backend
    draft: Backend | None
    """one of its draft models"""
    config: EngineConfig
    learning: Learning


def make_all(parts: Parts) -> list[Proposer]:
    """The registered proposers that these parts allow, in the order of the registry: those that need a draft
    model if there is one, otherwise the others."""
    made = (make(kind, parts) for kind in KINDS if (kind.needs == DRAFT.needs) == (parts.draft is not None))
    return [proposer for proposer in made if proposer is not None]


def make(kind: ProposerKind, parts: Parts) -> Proposer | None:
    """The proposer, or None where what it needs is missing."""
    made: Proposer | None = pkgutil.resolve_name(kind.factory)(parts)
    if made is not None and made.name != kind.name:
        raise ValueError(f"{kind.factory} makes the proposer {made.name!r}, not {kind.name!r}")
    return made


def prompt_lookup(parts: Parts) -> Proposer:
    return PromptLookup(n_min=parts.config.ngram_min, n_max=parts.config.ngram_max)


def memory_recall(parts: Parts) -> Proposer | None:
    memory = parts.learning.memory
    return None if memory is None else MemoryRecall(memory.tables, memory)


def draft_model(parts: Parts) -> Proposer | None:
    if parts.draft is None:
        return None
    return DraftModel(parts.draft, parts.target.vocabulary.size, parts.learning.know_draft(parts.draft).costs)


class Kit(NamedTuple):
    """The proposers for requests with one draft model, or without, by their names: ``plain`` ones draft as
    many tokens as requested; ``controllers`` choose the length, and serve requests that do not set one."""

    plain: Mapping[str, Proposer]
    controllers: Mapping[str, Controller]


class Proposers:
    """Calls each sequence's proposer, for all sequences of one proposer together.

    The engine's own proposers are made of its ``parts``; ``extra`` ones replace those of the same names.
    """

    def __init__(self, parts: Parts, extra: Seq[Proposer]) -> None:
        self._parts, self._extra, self._target = parts, extra, parts.target
        self._members = make_all(parts)
        self._kits: dict[int | None, Kit] = {}
        self.add(None)

    def add(self, number: int | None, draft: Backend | None = None) -> None:
        """Serve requests with this draft model, also by the proposers that need it."""
        drafting = [] if draft is None else make_all(self._parts._replace(draft=draft))
        mine = {proposer.name: proposer for proposer in self._extra}
        members = [mine.get(member.name, member) for member in (*self._members, *drafting)]
        own = [[member] for member in members if member.name not in mine]
        learning = self._parts.learning
        controllers = {
            name: Controller(among, learning.costs, learning.calibration, name=name)
            for name, among in [(AUTO, members), *((each[0].name, each) for each in own)]
        }
        plain = {proposer.name: proposer for proposer in (Nothing(), *members, *self._extra)}
        self._kits[number] = Kit(plain, controllers)

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
            elif widest_round(self._target, sequence) > 1:
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

    def _ask_of(self, sequence: Sequence, k: int) -> Ask:
        """Return the ask for a draft of ``k`` tokens, or of as many as the sequence and its cache allow."""
        rollback, replays = self._target.rollback(sequence.slot), self._target.capabilities.replays
        if rollback is not None and replays:
            # If the first token of a forward is taken back with its drafts, a replay feeds it again: it
            # need not count.
            rollback, replays = rollback + 1, False
        ask = sequence.ask(k, rollback)
        room = widest_round(self._target, sequence) - 1 - ask.missing
        return ask._replace(k=max(0, min(ask.k, room)), replays=replays)

    def _ask(self, sequences: Seq[Sequence]) -> dict[int, Offer]:
        """Return the offers for ``sequences``, which all have the same proposer."""
        proposer = self._of(sequences[0])
        most = LONGEST_K if isinstance(proposer, Controller) else DEFAULT_K
        asks = [self._ask_of(s, most if s.settings.k is None else s.settings.k) for s in sequences]
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
        size = self._target.vocabulary.size
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
    return LOOKUP.name if name in meanings() and name not in (LOOKUP.name, NONE) else NONE
