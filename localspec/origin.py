"""The place of a setting in its file or variable, for remedies that name it."""

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
"""parts of a key at most; localspec's keys have three"""

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
"""strings and comments, which can hold line ends, brackets and quotes, and these themselves"""


class Origin(NamedTuple):
    """The source of a configuration: its name, its text, and ``is_file`` if `config set` changes it."""

    name: str
    text: str = ""
    is_file: bool = False

    def remedy(self, place: Place, *, is_value: bool = False) -> str:
        """The remedy for a wrong table, or for a wrong value (``is_value``), which can be unset by itself."""
        line = line_of(self.text, place)
        where = self.name if line is None else f"line {line} of {self.name}"
        if not self.is_file:
            return f"Correct {where}."
        unset = (
            f", or `localspec config set {shlex.quote(dotted(place))} --unset`" if is_value and line else ""
        )
        return f"Correct {where}: `localspec config edit`{unset}."


def dotted(place: Place) -> str:
    """A key as TOML writes it: ``models."a.b".k``."""
    return ".".join(part if re.fullmatch(r"[\w-]+", part, re.ASCII) else _quoted(part) for part in place)


def _quoted(part: str) -> str:
    return msgspec.json.encode(part).decode()


def line_of(text: str, place: Place) -> int | None:
    """The number, from 1, of the first line about ``place``; None if none is found."""
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
    """The statements with their line numbers, from 1; a value may span several lines."""
    begin, number, depth = 0, 1, 0
    text += "\n"
    for token in _TOKEN.finditer(text):
        depth += (token[0] in "[{") - (token[0] in "]}")
        if token[0] == "\n" and depth <= 0:
            yield number, text[begin : token.start()]
            number += text.count("\n", begin, token.end())
            begin, depth = token.end(), 0


def key_of(line: str) -> Place:
    """The parts of the single key, or of the header, of a line of TOML; empty for other lines."""
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
    """Return True if a key has more than ``DEEPEST`` parts: reading it takes the square of their number."""
    return _DEEP.search(text) is not None
