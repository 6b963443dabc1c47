"""The models on this disk that could draft for a target, the most promising first, with the reasons."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

from localspec.errors import ModelError, ModelInvalid
from localspec.models.bundled import BUNDLED_DRAFT, BUNDLED_TARGET, bundled_model
from localspec.models.description import KINDS
from localspec.models.disk import known_beside
from localspec.models.fit import Size, size_of
from localspec.models.model import Model, place_of
from localspec.models.tried import Tried, known_of
from localspec.models.vocabulary import FITS, Fit, Tokens, check_pair, check_sizes, read_tokens
from localspec.protocol.engine_config import EngineConfig
from localspec.units import size

LEAST, LOW, HIGH = 2.0, 5.0, 30.0
"""times smaller than its target: a draft that is less than the first takes about as long as it saves; those
between the others are preferred"""
MIDDLE = math.sqrt(LOW * HIGH)
MILLION = 1_000_000
PAIR = "the bundled pair"


def no_limit(target: Model) -> int | None:
    """No limit of memory: none is known, or none is to apply."""
    return None


class Room(NamedTuple):
    """The room for a pair: how it is loaded, and the bytes that are free for a target; None: no limit."""

    config: EngineConfig = EngineConfig()
    free: Callable[[Model], int | None] = no_limit


class Candidate(NamedTuple):
    """A model beside a target: whether it may draft, whether that helps, and the sentence that says why.

    ``ratio`` is how many times smaller it is, ``needs`` the bytes that both take together.
    """

    model: Model
    verdict: Fit | Literal["refused"]
    ratio: float
    same_family: bool
    reason: str
    helps: bool = False
    needs: int | None = None
    tried: Tried = Tried()


def auto_draft(target: Model, model_dirs: tuple[str, ...], room: Room) -> tuple[Model | None, str]:
    """The draft model that ``draft = auto`` pairs a target with, and the reason, alike for all callers. Never
    raises for a broken model: loading it does."""
    try:
        return chosen(target, judged(target, model_dirs, room))
    except (ModelError, OSError) as error:
        return None, without(str(error))


def judged(target: Model, model_dirs: tuple[str, ...], room: Room) -> Iterator[Candidate]:
    """Every other model, the most promising first; each is examined when it is iterated to.

    Raises :class:`ModelError` for a target that cannot be read.
    """
    pairing = _Pairing(target, known_beside(target, model_dirs), room)
    yield from map(pairing.judge, pairing.others)


def chosen(target: Model, candidates: Iterable[Candidate]) -> tuple[Model | None, str]:
    """The first candidate that helps and the reason, or None and the reason why none does; for the bundled
    target the draft that it was trained with."""
    if target.place == place_of(bundled_model(BUNDLED_TARGET)):
        return Model(bundled_model(BUNDLED_DRAFT), "gguf"), PAIR
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
        known = {model.place: model.current() for model in models}
        same = known.pop(target.place, None)
        self._target = target.as_listed(same) if same is not None and target.known is None else target
        if self._target.problem is not None:
            size_of(target, room.config)  # raises what is wrong with it
        self._tokens: Tokens | None = None
        self._size: Size | None = None
        self._verdicts: dict[str | None, Fit | ModelError] = {self._target.description.vocab_fp: "exact"}
        """by the other's ``vocab_fp``"""
        self._tried = {model: self._known(model) for model in known.values()}
        self.others = sorted(known.values(), key=self._promise)

    def judge(self, model: Model) -> Candidate:
        """Everything about one of the others."""
        ratio, family = self._ratio(model), self._is_family(model)
        if never := self._never(model):
            return Candidate(model, "refused", ratio, family, never)
        try:
            verdict, needs = self._verdict(model), self._needs(model)
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

    def _known(self, model: Model) -> Tried:
        if self._never(model) or model.description.vocab_fp is None:
            return Tried()
        return known_of(self._target, model)

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
        """Raises :class:`ModelError`. Models of one vocabulary share a verdict."""
        fingerprint = model.description.vocab_fp
        if fingerprint is None or self._target.description.vocab_fp is None:
            raise ModelInvalid("the target or the draft model has no vocabulary")
        found = self._verdicts.get(fingerprint)
        if found is None:
            try:
                found = self._compared(model)
            except ModelError as error:
                found = error
            self._verdicts[fingerprint] = found
        if isinstance(found, ModelError):
            raise found
        return found

    def _compared(self, draft: Model) -> Fit:
        # Sizes are read in microseconds, texts in tenths of a second.
        sizes = self._target.header.n_tokens, draft.header.n_tokens
        if all(sizes):
            check_sizes(*sizes)
        self._tokens = self._tokens or read_tokens(self._target.path)
        return check_pair(self._tokens, read_tokens(draft.path))

    def _needs(self, model: Model) -> int:
        config = self._room.config
        self._size = self._size or size_of(self._target, config)
        return self._size.needs(size_of(model, config), config, self._free).total

    def _drawback(self, ratio: float, tried: Tried, needs: int) -> str:
        """The reason why a model would not help; empty where none is known."""
        if tried.failure is not None:
            return tried.failure.message()
        if tried.loses:
            return f"it does not make this target faster: {_acceptance(tried)}"
        if ratio < LEAST and not tried.wins:
            return f"it is only {ratio:.3g} times smaller"
        if self._free is not None and needs > self._free:
            return f"it does not fit: both need {size(needs)} of memory, {size(self._free)} are free"
        return ""


def _amount(model: Model) -> str:
    found = model.description
    return f"{found.parameters / MILLION:.0f} M parameters" if found.parameters else size(found.size)


def _acceptance(tried: Tried) -> str:
    return f"{tried.accepted / tried.drafted:.0%} of {tried.drafted} drafted tokens were accepted"
