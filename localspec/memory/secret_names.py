"""Names of files with secrets and little else; the editors' plugins have the same list."""

from __future__ import annotations

import json
import os
from importlib.resources import files

from localspec.memory.ignore import Rules, TooLarge

NAMES: dict[str, list[str]] = json.loads((files(__package__) / "known" / "names.json").read_text("utf-8"))
"""patterns in small letters: ``secret`` names, the ``harmless`` among them, those that
are ``always`` secret, and the name endings of ``copies``, which are as secret as their originals"""
LINES = [*NAMES["secret"], *(f"!{name}" for name in NAMES["harmless"]), *NAMES["always"]]
COPIES = tuple(NAMES["copies"])
_rules = Rules("\n".join(LINES).encode())


def is_secret(name: str) -> bool:
    """Return True if a file name, without endings of copies, is one of a file with secrets."""
    name = name.lower()
    while name.endswith(COPIES):
        name = name[: -max(len(end) for end in COPIES if name.endswith(end))]
    try:
        return _rules.excludes(os.fsencode(name), is_directory=False) is True
    except (TooLarge, UnicodeEncodeError):
        return True  # too long or not encodable: no file has such a name
