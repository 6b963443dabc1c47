"""Typed paths of models, and how they differ from names."""

from __future__ import annotations

import os
from pathlib import Path

from localspec.errors import InvalidOptions

SUFFIX = ".gguf"


def absolute(name: str) -> str:
    """Return a typed path as the daemon can find it from its own directory; names stay as they are. Raises
    :class:`InvalidOptions` for an empty one, which would mean this directory."""
    if not name:
        raise InvalidOptions("the name of a model is empty", "Give one of `localspec models list` or a path.")
    if name in ("bundled", "none", "auto"):
        return name
    try:
        is_file = name.endswith(SUFFIX) or os.path.isfile(path_of(name))
        return os.path.abspath(path_of(name)) if is_file or is_path(name) else name
    except OSError as error:
        raise InvalidOptions(
            f"{name} cannot be looked up on this disk: {error.strerror}",
            "Give one of `localspec models list`, or its path.",
        ) from None


def is_path(name: str) -> bool:
    """Return True if a name is a path; other names may contain a ``/``, as those of repositories do."""
    path = path_of(name)
    from_somewhere = name.startswith(("/", "./", "../")) or path != Path(name)
    return from_somewhere or ("/" in name and os.path.exists(path))


def path_of(name: str) -> Path:
    return Path(os.path.expanduser(name))
