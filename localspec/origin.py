"""Where a setting stands, for whoever is to mend it."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

Place = tuple[str, ...]
"""the tables that lead to a key, and the key"""

DEEPEST = 16
"""parts of a key; ours have three"""

_PART = r"""(?:[\w-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_KEY = rf"[ \t]*{_PART}(?:[ \t]*\.[ \t]*{_PART})*[ \t]*"
_HEADER = re.compile(rf"[ \t]*\[\[?{_KEY}\]")
_ENTRY = re.compile(rf"({_KEY})=")
_DEEP = re.compile(rf"(?:^|[\[{{,])[ \t]*{_PART}(?:[ \t]*\.[ \t]*{_PART}){{{DEEPEST}}}", re.MULTILINE)
_TOKEN = re.compile(
    r'''"""(?:\\.|[^\\])*?"{3,5}'''
    r"|'''.*?'{3,5}"
    r"""|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|#[^\n]*|[\[\]{}\n]""",
    re.DOTALL,
)
"""what may hold a line's end, a bracket or a quote, and those themselves"""


class Origin(NamedTuple):
    """What a configuration was read from: how people call it, its text, whether `config set` changes it."""

    name: str
    text: str = ""
    is_file: bool = False

    def remedy(self, place: Place, *, is_value: bool = False) -> str:
        """What to do about what stands there: a table, or a value, which can be taken out by itself."""
        line = line_of(self.text, place)
        where = self.name if line is None else f"line {line} of {self.name}"
        if not self.is_file:
            return f"Mend {where}."
        unset = (
            f", or `localspec config set {shlex.quote(dotted(place))} --unset`" if is_value and line else ""
        )
        return f"Mend {where}: `localspec config edit`{unset}."


def dotted(place: Place) -> str:
    """A key as TOML writes it: ``models."a.b".k``."""
    return ".".join(part if re.fullmatch(r"[\w-]+", part, re.ASCII) else _quoted(part) for part in place)


def _quoted(part: str) -> str:
    return msgspec.json.encode(part).decode()


def line_of(text: str, place: Place) -> int | None:
    """The first line, from 1, that says something of ``place``; None where none can be seen to."""
    table: Place = ()
    if not place:
        return None
    for number, line in _statements(text):
        if header := _HEADER.match(line):
            table = key_of(f"{header[0]}]" if "[[" in header[0] else header[0])
            if table[: len(place)] == place:
                return number
        elif entry := _ENTRY.match(line):
            key = (*table, *key_of(f"{entry[1]} = 0"))
            if all(one == other for one, other in zip(key, place, strict=False)):
                return number
    return None


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """The lines with their numbers, from 1; one with a value of several lines is one of them."""
    begin, number, depth = 0, 1, 0
    text += "\n"
    for token in _TOKEN.finditer(text):
        depth += (token[0] in "[{") - (token[0] in "]}")
        if token[0] == "\n" and depth <= 0:
            yield number, text[begin : token.start()]
            number += text.count("\n", begin, token.end())
            begin, depth = token.end(), 0


def key_of(line: str) -> Place:
    """The parts of the one key, or of the one header, of a line of TOML; of other lines nothing."""
    try:
        found: object = {} if is_deep(line) else tomllib.loads(line)
    except ValueError:
        return ()
    parts = []
    while isinstance(found, dict) and len(found) == 1:
        ((name, found),) = found.items()
        parts.append(name)
    return tuple(parts)


def is_deep(text: str) -> bool:
    """Whether a key has more than ``DEEPEST`` parts: reading it takes the square of their number."""
    return _DEEP.search(text) is not None
