"""Which models a key means on this disk, and what memory they need."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from localspec.config import Config
from localspec.daemon.worker import Key
from localspec.errors import LocalspecError
from localspec.models.catalogue import (
    BACKENDS,
    BUNDLED_DRAFT,
    BUNDLED_TARGET,
    bundled_model,
    find_model,
    format_of,
)
from localspec.models.fit import Needs, needs_of

NOT_PATHS = ("auto", "none")


class Identity(NamedTuple):
    """A key with paths for names, alike for all names of the same models; and what they need."""

    key: Key
    needs: Needs


def identify(key: Key, config: Config) -> Identity:
    """Looks at the disk. A name that cannot be resolved stays as it is: the worker tells what is wrong."""
    try:
        paths = _targets(key, config.model_dirs)
        target = paths[0]
        draft = key.draft
        if len(paths) > 1:  # which of the two it will be is measured, by the worker
            return Identity(Key(str(target), draft, key.backend), _needs(target, draft, config))
        if draft not in NOT_PATHS:
            draft = str(find_model(draft, config.model_dirs, format=format_of(target)).resolve())
        return Identity(Key(str(target), draft, BACKENDS[format_of(target)]), _needs(target, draft, config))
    except LocalspecError:
        return Identity(key, Needs())


def paths_of(model: str, model_dirs: tuple[str, ...]) -> set[str]:
    """The paths that a name stands for, two where there are both formats; raises :class:`ModelError`."""
    return {str(path) for path in _targets(Key(model, "auto", "auto"), model_dirs)}


def _targets(key: Key, model_dirs: tuple[str, ...]) -> list[Path]:
    """The GGUF file, the MLX directory, or both; raises :class:`ModelError`."""
    formats = [format for format, name in BACKENDS.items() if key.backend in ("auto", name)]
    found = [find_model(key.model, model_dirs, format=format).resolve() for format in formats]
    if not found or (key.backend != "auto" and format_of(found[0]) not in formats):
        raise LocalspecError(f"{key.backend} does not run {key.model}")
    return list(dict.fromkeys(found))


def _needs(target: Path, draft: str, config: Config) -> Needs:
    beside = None if draft in NOT_PATHS else Path(draft)
    if draft == "auto" and target == bundled_model(BUNDLED_TARGET, format_of(target)).resolve():
        beside = bundled_model(BUNDLED_DRAFT, format_of(target))
    return needs_of(target, beside, config.engine)
