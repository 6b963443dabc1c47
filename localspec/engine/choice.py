"""Which models to open, on which backend, and why."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from localspec.errors import BackendUnavailable, InvalidOptions
from localspec.models.candidates import KINDS, Room, auto_draft
from localspec.models.catalogue import BACKENDS, find_model, format_of, shown_name
from localspec.models.description import has_mlx

ANYWHERE = Room()
Speed = Callable[[Path], float | None]
"""seconds that a plain step of a model takes, if that was measured once"""


class Choice(NamedTuple):
    """Which models to open, why on this backend, and why this draft, or none; ``asked`` by somebody, or
    chosen: what was chosen is left out where it cannot be loaded. ``model_dirs``: where they have names."""

    target: Path
    draft: Path | None
    backend_reason: str
    draft_reason: str
    asked: bool = True
    model_dirs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What people are told that the target is called; looks at the disk."""
        return shown_name(self.target, self.model_dirs)

    @property
    def draft_name(self) -> str | None:
        """As :attr:`name`; None without a draft."""
        return None if self.draft is None else shown_name(self.draft, self.model_dirs)


def choose(
    model: str,
    draft: str,
    model_dirs: tuple[str, ...] = (),
    *,
    backend: str = "auto",
    speed: Speed = lambda path: None,
    room: Room = ANYWHERE,
) -> Choice:
    """Resolve names to models; ``draft`` may be ``auto`` or ``none``, ``backend`` may be ``auto``.

    ``room`` is what the pair that ``auto`` chooses is to fit in. Raises :class:`ModelNotFound`,
    :class:`BackendUnavailable` for a backend that localspec does not have here, and
    :class:`InvalidOptions` for one that cannot run this model.
    """
    target, on = _target(model, model_dirs, backend, speed)
    why = f"on {BACKENDS[format_of(target)]}, {on}"
    if draft == "none":
        return Choice(target, None, why, "no draft model was wanted", model_dirs=model_dirs)
    if draft != "auto":
        found = find_model(draft, model_dirs, format=format_of(target))
        return Choice(target, found, why, "this draft model was asked for", model_dirs=model_dirs)
    paired, reason = auto_draft(target, model_dirs, room)
    return Choice(target, paired, why, reason, asked=False, model_dirs=model_dirs)


def _target(model: str, model_dirs: tuple[str, ...], backend: str, speed: Speed) -> tuple[Path, str]:
    """The model, and why in this format."""
    if backend != "auto":
        return _wanted(model, model_dirs, backend), "as asked"
    gguf, mlx = (find_model(model, model_dirs, format=format) for format in ("gguf", "mlx"))
    if gguf == mlx:
        return gguf, f"which runs {KINDS[format_of(gguf)]}"
    seconds = speed(gguf), speed(mlx)
    if seconds[0] and seconds[1]:
        faster, slower = sorted(1.0 / s for s in seconds if s)[::-1]
        best = gguf if seconds[0] <= seconds[1] else mlx
        return best, f"which is faster here: {faster:.0f} tokens/s against {slower:.0f}"
    if not is_apple_silicon():
        return gguf, "as this is no Apple silicon"
    if not has_mlx():
        return gguf, "as mlx-lm is not installed"
    return mlx, "as this is Apple silicon"


def _wanted(model: str, model_dirs: tuple[str, ...], backend: str) -> Path:
    wanted = next((format for format, name in BACKENDS.items() if name == backend), None)
    if wanted is None:
        raise BackendUnavailable(f"there is no backend {backend!r} in this installation")
    found = find_model(model, model_dirs, format=wanted)
    if format_of(found) != wanted:
        raise InvalidOptions(
            f"{model} is {KINDS[format_of(found)]}; {backend} runs {KINDS[wanted]}",
            f"Add --backend auto: config.toml, LOCALSPEC_BACKEND or the session may ask for {backend}.",
        )
    return found


def is_apple_silicon() -> bool:
    """Whether MLX is at home here."""
    return platform.system() == "Darwin" and platform.machine() == "arm64"
