"""The name of a model as a person typed it."""

from __future__ import annotations

import os
from pathlib import Path

from localspec.config import load_config
from localspec.errors import InvalidOptions
from localspec.models.catalogue import is_path, list_models


def absolute(name: str) -> str:
    """A path as the daemon can find it from its own directory; names stay as they are.

    Raises :class:`InvalidOptions` for one without a letter, which would pass for this directory.
    """
    if not name:
        raise InvalidOptions(
            "the name of a model is empty", "Give one of `localspec models list`, or a path."
        )
    if name in ("bundled", "none", "auto"):
        return name
    try:
        return _absolute(name)
    except OSError as error:
        raise InvalidOptions(
            f"{name} cannot be looked for: {error.strerror}",
            "Give one of `localspec models list`, or its path.",
        ) from None


def _absolute(name: str) -> str:
    path, found = Path(os.path.expanduser(name)), is_path(name)
    if not found and (path.exists() or name.endswith(".gguf")):
        # Neither a folder that happens to be here nor a file that is not takes a model's place.
        found = (path.exists() and not path.is_dir()) or name.lower() not in _known()
    return os.path.abspath(path) if found else name


def _known() -> set[str]:
    return {name.lower() for model in list_models(load_config().model_dirs) for name in model.names}
