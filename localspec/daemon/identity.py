"""Which models a key means on this disk, and what memory they need."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from localspec.config import EngineConfig
from localspec.daemon.worker import Key
from localspec.errors import LocalspecError
from localspec.models.catalogue import (
    BACKENDS,
    BUNDLED_DRAFT,
    BUNDLED_TARGET,
    bundled_model,
    find_model,
    format_of,
    place_of,
)
from localspec.models.fit import Needs, needs_of
from localspec.models.sections import Sections

NOT_PATHS = ("auto", "none")


class Identity(NamedTuple):
    """A key with paths for names, alike for all names of the same models; their needs and settings."""

    key: Key
    needs: Needs
    engine: EngineConfig


def identify(key: Key, sections: Sections) -> Identity:
    """Looks at the disk. A name that cannot be resolved stays as it is: the worker tells what is wrong."""
    engine, model_dirs = sections.engine(key.model), sections.config.model_dirs
    try:
        paths = _targets(key, model_dirs)
        target = paths[0]
        if len(paths) > 1:  # which of the two it will be is measured, by the worker
            named = Key(place_of(target), key.draft, key.backend)
            return Identity(named, needs_of(target, _draft_beside(target, key.draft), engine), engine)
        draft, place = _draft_beside(target, key.draft), key.draft
        if key.draft not in NOT_PATHS:
            draft = find_model(key.draft, model_dirs, format=format_of(target))
            place = place_of(draft)
        named = Key(place_of(target), place, BACKENDS[format_of(target)])
        return Identity(named, needs_of(target, draft, engine), engine)
    except LocalspecError:
        return Identity(key, Needs(), engine)


def _targets(key: Key, model_dirs: tuple[str, ...]) -> list[Path]:
    """The GGUF file, the MLX directory, or both; raises :class:`ModelError`."""
    formats = [format for format, name in BACKENDS.items() if key.backend in ("auto", name)]
    found = [find_model(key.model, model_dirs, format=format) for format in formats]
    if not found or (key.backend != "auto" and format_of(found[0]) not in formats):
        raise LocalspecError(f"{key.backend} does not run {key.model}")
    return list(dict.fromkeys(found))


def _draft_beside(target: Path, draft: str) -> Path | None:
    """The draft that ``auto`` will choose, as far as that is known before a model is loaded."""
    format = format_of(target)
    bundled = draft == "auto" and place_of(target) == place_of(bundled_model(BUNDLED_TARGET, format))
    return bundled_model(BUNDLED_DRAFT, format) if bundled else None
