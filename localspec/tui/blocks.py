"""Markdown as it grows, cut into blocks that will not change any more, and the one that still may.

What is finished is painted once. The idea is Will McGugan's ("Efficient streaming of Markdown in the
terminal"): only the last top-level block can change when text is appended. Here the items of a list are
blocks as well, and an open fence is never parsed: it is code until its end has come.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from markdown_it import MarkdownIt
from markdown_it.token import Token

# Tags are text: what a model says in angle brackets is to be seen.
PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
SHORT = 2_000
"""characters of an open block that are parsed anew whenever it grows"""
GROWTH = 1 / 8
"""by which share a longer one must have grown, so that the whole costs no more than a few parses"""


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of Markdown; of code, the ``source`` is what stands between the fences."""

    kind: Literal["prose", "code"]
    source: str
    language: str = ""
    joined: bool = False
    """whether it follows the block before without an empty line, as an item of its list"""


@dataclass(frozen=True, slots=True)
class _Fence:
    """The opening line of a fence whose end has not come."""

    opening: str
    ends: re.Pattern[str]
    language: str

    @classmethod
    def of(cls, opening: str, token: Token) -> _Fence:
        mark = re.escape(token.markup[0])
        ends = re.compile(rf" {{0,3}}{mark}{{{len(token.markup)},}}[ \t]*")
        return cls(opening, ends, language_of(token))


@dataclass(frozen=True, slots=True)
class _Unit:
    """A top-level block or an item of a list, by the line where it begins."""

    line: int
    token: Token
    joined: bool


class Blocks:
    """Text goes in, blocks come out: :meth:`append` and :meth:`finish` return those that have ended."""

    def __init__(self) -> None:
        self._tail = ""
        self._parsed = 0
        self._fence: _Fence | None = None
        self._joined = False

    @property
    def open(self) -> Block | None:
        """The block that still grows, as far as it has come."""
        if self._fence is not None:
            return Block("code", self._tail, self._fence.language)
        return Block("prose", self._tail, joined=self._joined) if self._tail.strip() else None

    def append(self, text: str) -> list[Block]:
        """``text`` has come; returns the blocks that are finished by it."""
        self._tail += text
        finished: list[Block] = []
        while self._fence is not None or self._grown():
            before = len(finished)
            finished += self._end_of_fence() if self._fence is not None else self._units()
            if len(finished) == before:
                break
        return finished

    def finish(self) -> list[Block]:
        """No more text will come; returns what was open."""
        self._parsed = -1
        finished = self.append("")
        if (fence := self._fence) is not None:
            lines = self._tail.split("\n")
            if fence.ends.fullmatch(lines[-1]):
                del lines[-1]
            finished.append(_code(fence, "\n".join(lines)))
        elif (last := self.open) is not None:
            finished.append(last)
        self._tail, self._parsed, self._fence, self._joined = "", 0, None, False
        return finished

    def _grown(self) -> bool:
        """Whether it is worth looking for what has ended."""
        size = len(self._tail)
        return size <= SHORT or self._parsed < 0 or size - self._parsed > self._parsed * GROWTH

    def _end_of_fence(self) -> list[Block]:
        fence = self._fence
        assert fence is not None
        *lines, _ = self._tail.split("\n")
        for number, line in enumerate(lines):
            if fence.ends.fullmatch(line):
                self._tail = "\n".join(self._tail.split("\n")[number + 1 :])
                self._fence, self._joined, self._parsed = None, False, 0
                return [_code(fence, "\n".join(lines[:number]))]
        return []

    def _units(self) -> list[Block]:
        """Cut off all that is followed by something; the last unit stays, or is a fence that opens."""
        self._parsed = len(self._tail)
        units = _units(PARSER.parse(self._tail), joined=self._joined)
        if not units:
            return []
        lines = self._tail.split("\n")
        ends = [unit.line for unit in units[1:]]
        finished = [
            _block(unit, "\n".join(lines[unit.line : end])) for unit, end in zip(units, ends, strict=False)
        ]
        last = units[-1]
        self._tail = "\n".join(lines[last.line :])
        self._parsed = min(self._parsed, len(self._tail)) if self._parsed >= 0 else -1
        self._joined = last.joined
        if last.token.type == "fence" and "\n" in self._tail:
            opening, _, self._tail = self._tail.partition("\n")
            self._fence = _Fence.of(opening, last.token)
            return finished + self._end_of_fence()
        return finished


def language_of(fence: Token) -> str:
    """What a fence says its code is, in one word."""
    words = fence.info.split()
    return words[0] if words else ""


def _units(tokens: list[Token], *, joined: bool) -> list[_Unit]:
    units: list[_Unit] = []
    for token in tokens:
        if token.map is None or token.nesting < 0:
            continue
        if token.level == 0 and not token.type.endswith("_list_open"):
            units.append(_Unit(token.map[0], token, joined=False))
        elif token.level == 1 and token.type == "list_item_open":
            follows = bool(units) and units[-1].token.type == "list_item_open"
            same = follows and units[-1].token.markup == token.markup
            units.append(_Unit(token.map[0], token, joined=same if units else joined))
    return units


def _block(unit: _Unit, source: str) -> Block:
    if unit.token.type == "fence":
        return Block("code", unit.token.content.removesuffix("\n"), language_of(unit.token))
    return Block("prose", source.rstrip("\n"), joined=unit.joined)


def _code(fence: _Fence, body: str) -> Block:
    """What a fence holds: its indentation is taken off as the parser does."""
    (token,) = PARSER.parse(f"{fence.opening}\n{body}")
    return Block("code", token.content.removesuffix("\n"), fence.language)
