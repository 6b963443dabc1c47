"""The chats, as they are kept on this disk."""

from __future__ import annotations

import shlex
from pathlib import Path

from localspec.doctor.finding import Finding, some

BESIDE = ("-wal", "-shm")
"""SQLite's own files, which go along with a database"""


def history(path: Path) -> Finding:
    """Whether the database at ``path`` is the first one, or one was damaged."""
    found = path.parent.glob(f"{path.name}.damaged-*")
    aside = sorted(str(each) for each in found if not each.name.endswith(BESIDE))
    if aside:
        told = f"The chats were damaged, and set aside as {some(aside)}; a new file was begun."
        files = " ".join(f"{shlex.quote(each)}*" for each in aside)
        return Finding("history", "warning", told, f"If nothing in there is missed: rm {files}")
    kept = f"The chats are in {path}." if path.exists() else "No chats are kept yet."
    return Finding("history", "ok", kept)
