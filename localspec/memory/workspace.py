"""The workspace that a directory belongs to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def workspace_of(directory: Path) -> Path | None:
    """The nearest git root of the user's that holds ``directory``, as a real path; None outside of any.

    A root whose ``.git`` belongs to another user does not count, as for git's own ``safe.directory``: in
    ``/tmp`` any user could turn all directories into their own workspace.
    """
    return next((root for root in _roots(directory) if _is_trusted(root)), None)


def repository_of(directory: Path) -> Path | None:
    """The git root that holds ``directory``, of any owner."""
    return next(_roots(directory), None)


def is_gits_own(directory: Path) -> bool:
    """Return True for a directory of git's own files: a bare repository, or a ``.git``."""
    return all(os.path.exists(directory / name) for name in ("HEAD", "objects", "refs"))


def _roots(directory: Path) -> Iterator[Path]:
    real = directory.resolve()
    # In a worktree and a submodule .git is a file.
    return (place for place in (real, *real.parents) if (place / ".git").exists())


def _is_trusted(root: Path) -> bool:
    """Return True if the user or the administrator owns ``root``, its ``.git``, and the target of that link.

    False if one cannot be examined; True on systems without user ids.
    """
    if not hasattr(os, "geteuid"):
        return True
    try:
        places = os.stat(root), os.lstat(root / ".git"), os.stat(root / ".git")
    except OSError:
        return False
    return {place.st_uid for place in places} <= _trusted_users()


def _trusted_users() -> set[int]:
    """The ids of the user, of the administrator, and, under ``sudo``, of the user who ran it."""
    users, caller = {0, os.geteuid()}, os.environ.get("SUDO_UID", "")
    if os.geteuid() == 0 and caller.isascii() and caller.isdigit():
        users.add(int(caller))
    return users


def plain(path: str) -> str:
    """A path as text that any encoder accepts: bytes that are not UTF-8 are escaped, always alike."""
    return path.encode("utf-8", "backslashreplace").decode()
