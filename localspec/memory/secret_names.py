"""Names of files with secrets and little else; the editors' plugins have the same list."""

from __future__ import annotations

import fnmatch
import json
import re
from functools import cache
from importlib.resources import files

NAMES: dict[str, list[str]] = json.loads((files(__package__) / "known" / "names.json").read_text("utf-8"))
"""patterns in small letters: ``secret`` names, the ``harmless`` among them, those that
are ``always`` secret, and the name endings of ``copies``, which are as secret as their originals"""
COPIES = tuple(NAMES["copies"])
LONGEST = 1024
"""characters of a name; no file has a longer one"""


def is_secret(name: str) -> bool:
    """Return True if a file name, without endings of copies, is one of a file with secrets."""
    name = name.lower()
    while name.endswith(COPIES):
        name = name[: -max(len(end) for end in COPIES if name.endswith(end))]
    if len(name) > LONGEST or _is_one_of("always", name):
        return True
    return _is_one_of("secret", name) and not _is_one_of("harmless", name)


def _is_one_of(kind: str, name: str) -> bool:
    return _pattern(kind).match(name) is not None


@cache
def _pattern(kind: str) -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, NAMES[kind])))
