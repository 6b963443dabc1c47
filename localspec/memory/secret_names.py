"""Names of files that hold secrets and little else; the editors' plugins have the same list."""

from __future__ import annotations

import json
import os
from importlib.resources import files

from localspec.memory.ignore import Rules, TooLarge

NAMES: dict[str, list[str]] = json.loads((files(__package__) / "known" / "names.json").read_text("utf-8"))
"""patterns in small letters with at most one ``*``: ``secret`` names, of these the ``harmless``, and of those
that begin or end with ``.env`` the ``samples``"""
LINES = [".env", ".env.*", *NAMES["secret"], *(f"!{name}" for name in NAMES["harmless"] + NAMES["samples"])]
_rules = Rules("\n".join(LINES).encode())


def is_secret(name: str) -> bool:
    """Whether a file of this name holds secrets and little else."""
    try:
        return _rules.excludes(os.fsencode(name.lower()), is_directory=False) is True
    except (TooLarge, UnicodeEncodeError):
        return True  # nothing on a disk is called so
