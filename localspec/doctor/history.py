"""The database of chats on this disk."""

from __future__ import annotations

import shlex
from pathlib import Path

from localspec.doctor.finding import Finding, some

BESIDE = ("-wal", "-shm")
"""SQLite's own files, which go along with a database"""


def history(path: Path) -> Finding:
    """Check the database at ``path``, and warn of earlier ones that were damaged."""
    found = path.parent.glob(f"{path.name}.damaged-*")
    aside = sorted(str(each) for each in found if not each.name.endswith(BESIDE))
    if aside:
        sentence = f"The file of chats was damaged and set aside as {some(aside)}; a new one was started."
        files = " ".join(f"{shlex.quote(each)}*" for each in aside)
        return Finding("history", "warning", sentence, f"If you do not need its chats: `rm {files}`")
    kept = f"The chats are in {path}." if path.exists() else "No chats are stored yet."
    return Finding("history", "ok", kept)
