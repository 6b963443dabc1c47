"""The theme that the user has chosen, kept from one chat to the next."""

from __future__ import annotations

from collections.abc import Container
from contextlib import suppress
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.home import state_dir, write_private


def kept(themes: Container[str]) -> str | None:
    """The chosen theme; None if it is none of ``themes``, or cannot be read."""
    try:
        name = _path().read_text("utf-8").strip()
    except (LocalspecError, OSError, ValueError):
        return None
    return name if name in themes else None


def keep(name: str) -> None:
    """Store the chosen theme; errors are ignored."""
    with suppress(LocalspecError, OSError):
        write_private(_path(), f"{name}\n")


def _path() -> Path:
    return state_dir() / "chat-theme"
