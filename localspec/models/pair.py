"""The one choice of a target, the backend that runs it, and its drafter, with the reasons; and the models on
this disk that could draft for it, the most promising first.

The daemon makes it, or the command with ``--no-daemon``; the process that opens the models gets the result.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from localspec.errors import BackendUnavailable, InvalidOptions, ModelError, ModelInvalid, ModelNotFound
from localspec.models.catalogue import BUNDLED_DRAFT, BUNDLED_TARGET, bundled_model
from localspec.models.descriptions import count, has_mlx
from localspec.models.fit import needs_of, nodes_of
from localspec.models.index import forget_recent, known_beside
from localspec.models.library import find, in_formats
from localspec.models.model import BACKENDS, FORMATS, KINDS, Model, model_from, place_of
from localspec.models.needs import Needs, lower_contexts, size_of
from localspec.models.records import PairResults, read_pair_results
from localspec.models.vocabulary import FITS, Fit, Tokens, check_pair, check_sizes, read_tokens
from localspec.protocol.frames import PairFile
from localspec.protocol.requests import EngineConfig
from localspec.wording import size

LEAST, LOW, HIGH = 2.0, 5.0, 30.0
"""times smaller than its target: a draft that is less than the first takes about as long as it saves; those
between the others are preferred"""
MIDDLE = math.sqrt(LOW * HIGH)


class Room(NamedTuple):
    """The room for a pair: how it is loaded, and the bytes that are free for a target; None: no limit."""

    config: EngineConfig = EngineConfig()
    free: Callable[[Model], int | None] = lambda _target: None


ANYWHERE = Room()
NOTHING = Needs()


@dataclass(frozen=True)
class Drafter:
    """The drafter of a target, or none, and the reason. One that was not requested (``asked``) is left out
    where it cannot be loaded."""

    model: Model | None = None
    why: str = ""
    asked: bool = True


@dataclass(frozen=True)
class Pair:
    """A target, its drafter, the reason for its backend (``why``), and the memory that both need at least;
    ``least``: without a drafter that was not requested, which may be left out, then with lower contexts."""

    target: Model
    drafter: Drafter
    why: str
    needs: Needs = field(default=NOTHING, compare=False)
    least: tuple[Needs, ...] = field(default=(), compare=False)

    @property
    def draft(self) -> Model | None:
        return self.drafter.model

    @property
    def backend(self) -> str:
        return BACKENDS[self.target.format]

    @property
    def models(self) -> tuple[Model, ...]:
        """The models whose files are opened."""
        return (self.target,) if self.draft is None else (self.target, self.draft)

    @property
    def is_current(self) -> bool:
        """True if all files are as they were when the pair was chosen."""
        return all(model.is_current for model in self.models)

    def as_frame(self) -> PairFile:
        draft = None if self.draft is None else self.draft.as_frame()
        return PairFile(self.target.as_frame(), self.why, draft, self.drafter.why, self.drafter.asked)


def pair_from(frame: PairFile) -> Pair:
    """The pair that another process chose; no file is read."""
    draft = None if frame.draft is None else model_from(frame.draft)
    return Pair(model_from(frame.target), Drafter(draft, frame.draft_why, frame.asked), frame.why)


def choose(
    model: str,
    draft: str,
    model_dirs: tuple[str, ...] = (),
    *,
    backend: str = "auto",
    room: Room = ANYWHERE,
) -> Pair:
    """Choose the target, the backend that runs it, and its drafter. ``model`` and ``draft`` are names or
    paths. ``draft`` may also be ``auto``, which chooses a draft model that fits into the memory of
    ``room``, or ``none``; ``backend`` may be ``auto``. ``room`` has the settings that the pair is loaded
    with. Raises the errors of :func:`find` for a model that is not found, ambiguous or damaged,
    :class:`TokenizerMismatch` for a named draft model, :class:`BackendUnavailable` for a backend that this
    installation does not have, and :class:`InvalidOptions` for one that cannot run this model."""
    pair = _choose(model, draft, model_dirs, backend, room)
    if not pair.is_current:
        forget_recent()  # a file has changed since the stores were read, within some seconds
        pair = _choose(model, draft, model_dirs, backend, room)
    return pair


def _choose(model: str, draft: str, model_dirs: tuple[str, ...], backend: str, room: Room) -> Pair:
    target, on = _target(model, backend, model_dirs)
    drafter = _drafter(target, draft, model_dirs, room)
    needs, least = _needs(target, drafter, room.config)
    return Pair(target, drafter, f"on {BACKENDS[target.format]}, {on}", needs, least)


def _drafter(target: Model, draft: str, model_dirs: tuple[str, ...], room: Room) -> Drafter:
    """The drafter that was requested, or that ``auto`` chooses."""
    if draft == "none":
        return Drafter(why="no draft model was requested (draft = none)")
    if draft == "auto":
        model, why = auto_draft(target, model_dirs, room)
        return Drafter(model, why, asked=False)
    try:
        found = find(draft, model_dirs, format=target.format)
    except ModelNotFound as error:
        raise ModelNotFound(f"the draft model: {error.message}", error.remedy) from None
    fit = FITS[check_pair(read_tokens(target.path), read_tokens(found.path))]
    return Drafter(found, f"this draft model was requested; {fit}")


def _needs(target: Model, drafter: Drafter, config: EngineConfig) -> tuple[Needs, tuple[Needs, ...]]:
    """The memory that both need with as few sequences as possible: no other model leaves for more of them.
    And the least ones. Zeros where a header cannot be read."""
    try:
        asked = drafter.model if drafter.asked else None
        least = tuple(needs_of(target, asked, each, 0) for each in lower_contexts(target, config))
        return needs_of(target, drafter.model, config, 0), least
    except ModelError:
        return NOTHING, ()


def _target(model: str, backend: str, model_dirs: tuple[str, ...]) -> tuple[Model, str]:
    """The model, and the reason for its format."""
    if backend != "auto":
        wanted = next((format for format in FORMATS if BACKENDS[format] == backend), None)
        if wanted is None:
            raise BackendUnavailable(f"there is no backend {backend!r} in this installation")
        found = find(model, model_dirs, format=wanted)
        if found.format != wanted:
            raise InvalidOptions(
                f"the backend {backend} cannot run {model}: it is {KINDS[found.format]}, not {KINDS[wanted]}",
                f"Add --backend auto: config.toml, LOCALSPEC_BACKEND or the session may have set {backend}.",
            )
        return found, "as requested"
    gguf, *others = in_formats(model, model_dirs)
    if not others:
        return gguf, f"which runs {KINDS[gguf.format]}"
    if not is_apple_silicon():
        return gguf, "as this is not Apple silicon"
    if not has_mlx():
        return gguf, "as mlx-lm is not installed"
    return others[0], "as this is Apple silicon"


def is_apple_silicon() -> bool:
    """True on Apple silicon, on which processor and graphics processor share the memory."""
    return platform.system() == "Darwin" and platform.machine() == "arm64"


# Candidates.


class Candidate(NamedTuple):
    """A model beside a target: whether it may draft, whether that helps, and the sentence that says why.
    ``ratio`` is how many times smaller it is, ``needs`` the bytes that both take together."""

    model: Model
    verdict: Fit | Literal["refused"]
    ratio: float
    same_family: bool
    reason: str
    helps: bool = False
    needs: int | None = None
    tried: PairResults = PairResults()


def auto_draft(target: Model, model_dirs: tuple[str, ...], room: Room) -> tuple[Model | None, str]:
    """The draft model that ``draft = auto`` pairs a target with, and the reason, alike for all callers. Never
    raises for a broken model: loading it does."""
    try:
        return choose_draft(target, judge_candidates(target, model_dirs, room))
    except (ModelError, OSError) as error:
        return None, without(str(error))


def judge_candidates(target: Model, model_dirs: tuple[str, ...], room: Room) -> Iterator[Candidate]:
    """Every other model, the most promising first; each is examined when it is iterated to. Raises
    :class:`ModelError` for a target that cannot be read."""
    pairing = _Pairing(target, known_beside(target, model_dirs), room)
    yield from map(pairing.judge, pairing.others)


def choose_draft(target: Model, candidates: Iterable[Candidate]) -> tuple[Model | None, str]:
    """The first candidate that helps and the reason, or None and the reason why none does; for the bundled
    target the draft that it was trained with."""
    if target.place == place_of(bundled_model(BUNDLED_TARGET)):
        return Model(bundled_model(BUNDLED_DRAFT), "gguf"), "the bundled pair"
    nearly = ""
    for found in candidates:
        if found.helps:
            return found.model, f"{found.model.name} drafts: {found.reason}"
        if found.verdict != "refused" and not nearly:
            nearly = f"the best one, {found.model.name}, {found.reason.removeprefix('it ')}"
    return None, without(nearly or "no model on this disk is smaller and has the same vocabulary")


def without(why: str) -> str:
    """The sentence that says why no draft model is used, and which proposers draft instead."""
    return f"no draft model: {why}; prompt lookup and n-gram memory draft instead"


class _Pairing:
    """A target, and the ``others`` by how promising they look before their vocabularies are compared."""

    def __init__(self, target: Model, models: Iterable[Model], room: Room) -> None:
        self._room = room
        self._free = room.free(target)
        known = {model.place: model for model in models}
        same = known.pop(target.place, None)
        self._target = target.as_listed(same) if same is not None and target.known is None else target
        if self._target.problem is not None:
            size_of(target, room.config)  # raises what is wrong with it
        self._tokens: Tokens | None = None
        self._tried = {model: self._read_results(model) for model in known.values()}
        self.others = sorted(known.values(), key=self._promise)

    def judge(self, model: Model) -> Candidate:
        """Everything about one of the others."""
        ratio, family = self._ratio(model), self._is_family(model)
        if never := self._never(model):
            return Candidate(model, "refused", ratio, family, never)
        try:
            verdict = self._verdict(model)
            needs = needs_of(self._target, model, self._room.config, self._free).total
        except ModelError as error:
            return Candidate(model, "refused", ratio, family, error.message)
        tried = self._tried[model]
        drawback = self._drawback(ratio, tried, needs)
        merits = f"{FITS[verdict]}, {'same' if family else 'another'} family, {ratio:.3g} times smaller"
        if tried.wins:
            merits += f"; {_acceptance(tried)}, {tried.gain:.2f} times as fast"
        return Candidate(model, verdict, ratio, family, drawback or merits, not drawback, needs, tried)

    # Before anything of it is read.

    def _ratio(self, model: Model) -> float:
        target, candidate = self._target.description, model.description
        if target.parameters and candidate.parameters:
            return target.parameters / candidate.parameters
        return target.size / max(1, candidate.size)

    def _read_results(self, model: Model) -> PairResults:
        if self._never(model) or model.description.vocab_fp is None:
            return PairResults()
        return read_pair_results(self._target, model, nodes_of(self._target, self._room.config))

    def _is_family(self, model: Model) -> bool:
        return model.description.architecture == self._target.description.architecture

    def _promise(self, model: Model) -> tuple[float | bool | str, ...]:
        """Sorts: measured to be of use, of the same family, 5 to 30 times smaller, of the same vocabulary."""
        tried, ratio = self._tried[model], max(self._ratio(model), 1e-9)
        return (
            bool(self._never(model)),
            -(tried.gain or 0.0) if tried.wins else 0.0,
            not self._is_family(model),
            max(0.0, math.log(LOW / ratio), math.log(ratio / HIGH)),
            model.description.vocab_fp != self._target.description.vocab_fp,
            abs(math.log(ratio / MIDDLE)),
            model.description.path,
        )

    def _never(self, model: Model) -> str:
        """The reason why a model cannot help whatever its vocabulary; empty where there is none."""
        if model.problem is not None:
            return model.problem
        if model.format != self._target.format:
            return f"it is {KINDS[model.format]}, the target {KINDS[self._target.format]}"
        if self._ratio(model) <= 1.0:
            return f"it is not smaller: {_amount(model)}, the target {_amount(self._target)}"
        return ""

    # From its headers.

    def _verdict(self, model: Model) -> Fit:
        own, other = self._target.description.vocab_fp, model.description.vocab_fp
        if own is None or other is None:
            raise ModelInvalid("the target or the draft model has no vocabulary")
        if own == other:
            return "exact"
        # Sizes are read in microseconds, texts in tenths of a second.
        sizes = self._target.header.n_tokens, model.header.n_tokens
        if all(sizes):
            check_sizes(*sizes)
        self._tokens = self._tokens or read_tokens(self._target.path)
        return check_pair(self._tokens, read_tokens(model.path))

    def _drawback(self, ratio: float, tried: PairResults, needs: int) -> str:
        """The reason why a model would not help; empty where none is known."""
        if tried.loses:
            return f"it does not make this target faster: {_acceptance(tried)}"
        if ratio < LEAST and not tried.wins:
            return f"it is only {ratio:.3g} times smaller"
        if self._free is not None and needs > self._free:
            return f"it does not fit: both need {size(needs)} of memory, {size(self._free)} are free"
        return ""


def _amount(model: Model) -> str:
    found = model.description
    return f"{count(found.parameters)} parameters" if found.parameters else size(found.size)


def _acceptance(tried: PairResults) -> str:
    return f"{tried.accepted / tried.drafted:.0%} of {tried.drafted} drafted tokens were accepted"
