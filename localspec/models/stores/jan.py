"""Jan's models: ``<engine>/models/<id>/model.yml`` beside, or pointing at, a GGUF file or a directory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from localspec.errors import ModelError
from localspec.models.bounded import read_bounded
from localspec.models.stores.folder import scan_folder
from localspec.models.stores.found import Found, entries

MAX_SETTINGS = 1024 * 1024
MODEL_PATH = re.compile(r"^model_path:\s*[\"']?(.+?)[\"']?\s*$", re.MULTILINE)


def scan_jan(root: Path) -> Iterator[Found]:
    """Every model of Jan's data directory ``root``; raises :class:`OSError` where it cannot be read."""
    entries(root)
    for engine in ("llamacpp", "mlx"):
        folder = root / engine / "models"
        if os.path.isdir(folder):
            for found in scan_folder(folder):
                yield found._replace(id=_id(found, folder))
            for settings in sorted(folder.rglob("model.yml")):
                yield from _imported(root, settings, settings.parent.relative_to(folder).as_posix())


def _id(found: Found, folder: Path) -> str:
    """The model's name: that of the directory for a file named model.gguf."""
    if found.path.name != "model.gguf" or found.path.parent == folder:
        return found.id
    return found.path.parent.name


def _imported(root: Path, settings: Path, id: str) -> Iterator[Found]:
    """A model that was imported from a path elsewhere, also if that is missing."""
    try:
        entry = MODEL_PATH.search(read_bounded(settings, MAX_SETTINGS).decode("utf-8", "replace"))
    except ModelError as error:
        yield Found(settings, id, problem=error.message, remedy=error.remedy)
        return
    if entry is None:
        return
    path = root / entry[1]
    if not os.path.isfile(path):
        problem = f"{settings} names {path}, which is missing"
        yield Found(settings, id, problem=problem, remedy="Import or download it again in Jan.")
    elif not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(settings.parent)):
        yield Found(path, id.rpartition("/")[2])
