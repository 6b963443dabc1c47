"""Names of files that hold secrets and little else; the editors' plugins have the same list."""

from __future__ import annotations

import json
import os
from importlib.resources import files

from localspec.memory.ignore import Rules, TooLarge

NAMES: dict[str, list[str]] = json.loads((files(__package__) / "known" / "names.json").read_text("utf-8"))
"""patterns in small letters with at most one ``*``: ``secret`` names, of these the ``harmless``, those that
``always`` are secret, and the ends of the names of ``copies``, which are as secret as what they copy"""
LINES = [*NAMES["secret"], *(f"!{name}" for name in NAMES["harmless"]), *NAMES["always"]]
COPIES = tuple(NAMES["copies"])
_rules = Rules("\n".join(LINES).encode())


def is_secret(name: str) -> bool:
    """Return whether a file name, without endings of copies, is one of a file that holds secrets."""
    name = name.lower()
    while name.endswith(COPIES):
        name = name[: -max(len(end) for end in COPIES if name.endswith(end))]
    try:
        return _rules.excludes(os.fsencode(name), is_directory=False) is True
    except (TooLarge, UnicodeEncodeError):
        return True  # too long or not encodable: no file has such a name
