"""The one choice of a target, the backend that runs it, and its drafter, with the reasons.

The daemon makes it, or the command with ``--no-daemon``; the process that opens the models gets the result.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, field

from localspec.errors import BackendUnavailable, InvalidOptions, ModelError
from localspec.models.candidates import Room, auto_draft
from localspec.models.description import BACKENDS, FORMATS, KINDS, has_mlx
from localspec.models.disk import forget_recent
from localspec.models.fit import Needs, size_of
from localspec.models.library import find, in_formats
from localspec.models.model import Model, model_from
from localspec.models.vocabulary import FITS, check_pair, read_tokens
from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.pairs import DrafterFile, PairFile

ANYWHERE = Room()
NOTHING = Needs()
NO_DRAFT = "no draft model was requested (draft = none)"


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
    ``least``: the memory without a drafter that was not requested, as such a one may be left out."""

    target: Model
    drafter: Drafter
    why: str
    needs: Needs = field(default=NOTHING, compare=False)
    least: Needs = field(default=NOTHING, compare=False)

    @property
    def draft(self) -> Model | None:
        """The draft model; None without one."""
        return self.drafter.model

    @property
    def backend(self) -> str:
        """The name of the backend that runs the target."""
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
        """The frame that sends the pair to another process."""
        draft = None if self.draft is None else self.draft.as_frame()
        drafter = DrafterFile(draft, self.drafter.why, self.drafter.asked)
        return PairFile(self.target.as_frame(), self.why, drafter)


def pair_from(frame: PairFile) -> Pair:
    """The pair that another process chose; no file is read."""
    drafter = frame.drafter
    model = None if drafter.model is None else model_from(drafter.model)
    return Pair(model_from(frame.target), Drafter(model, drafter.why, drafter.asked), frame.why)


def choose(
    model: str,
    draft: str,
    model_dirs: tuple[str, ...] = (),
    *,
    backend: str = "auto",
    room: Room = ANYWHERE,
) -> Pair:
    """Choose the target, the backend that runs it, and its drafter.

    ``model`` and ``draft`` are names or paths. ``draft`` may also be ``auto``, which chooses a draft model
    that fits into the memory of ``room``, or ``none``; ``backend`` may be ``auto``. ``room`` has the
    settings that the pair is loaded with.

    Raises the errors of :func:`find` for a model that is not found, ambiguous or damaged,
    :class:`TokenizerMismatch` for a named draft model, :class:`BackendUnavailable` for a backend that this
    installation does not have, and :class:`InvalidOptions` for one that cannot run this model.
    """
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
        return Drafter(why=NO_DRAFT)
    if draft == "auto":
        model, why = auto_draft(target, model_dirs, room)
        return Drafter(model, why, asked=False)
    found = find(draft, model_dirs, format=target.format)
    fit = FITS[check_pair(read_tokens(target.path), read_tokens(found.path))]
    return Drafter(found, f"this draft model was requested; {fit}")


def _needs(target: Model, drafter: Drafter, config: EngineConfig) -> tuple[Needs, Needs]:
    """The memory that both need with as few sequences as possible: no other model leaves for more of them.
    And the least. Zeros where a header cannot be read."""
    try:
        size = size_of(target, config)
        draft = None if drafter.model is None else size_of(drafter.model, config)
        asked = draft if drafter.asked else None
        return size.needs(draft, config, 0), size.needs(asked, config, 0)
    except ModelError:
        return NOTHING, NOTHING


def _target(model: str, backend: str, model_dirs: tuple[str, ...]) -> tuple[Model, str]:
    """The model, and the reason for its format."""
    if backend != "auto":
        return _wanted(model, backend, model_dirs), "as requested"
    gguf, *others = in_formats(model, model_dirs)
    if not others:
        return gguf, f"which runs {KINDS[gguf.format]}"
    if not is_apple_silicon():
        return gguf, "as this is not Apple silicon"
    if not has_mlx():
        return gguf, "as mlx-lm is not installed"
    return others[0], "as this is Apple silicon"


def _wanted(model: str, backend: str, model_dirs: tuple[str, ...]) -> Model:
    wanted = next((format for format in FORMATS if BACKENDS[format] == backend), None)
    if wanted is None:
        raise BackendUnavailable(f"there is no backend {backend!r} in this installation")
    found = find(model, model_dirs, format=wanted)
    if found.format != wanted:
        forms = f"{KINDS[found.format]}, not {KINDS[wanted]}"
        raise InvalidOptions(
            f"the backend {backend} cannot run {model}: it is {forms}",
            f"Add --backend auto: config.toml, LOCALSPEC_BACKEND or the session may have set {backend}.",
        )
    return found


def is_apple_silicon() -> bool:
    """True on Apple silicon, on which processor and graphics processor share the memory."""
    return platform.system() == "Darwin" and platform.machine() == "arm64"
