"""Which workspace a directory belongs to."""

from __future__ import annotations

from pathlib import Path


def workspace_of(directory: Path) -> Path | None:
    """The git root that holds ``directory``, as a real path; None outside of any."""
    real = directory.resolve()
    # In a worktree and a submodule .git is a file.
    return next((place for place in (real, *real.parents) if (place / ".git").exists()), None)


def plain(path: str) -> str:
    """A path as text that any encoder takes: bytes that are no UTF-8 are spelled out, always alike."""
    return path.encode("utf-8", "backslashreplace").decode()
