"""Growing Markdown, cut into finished blocks, which do not change any more, and the open one.

A finished block is painted once. The idea is Will McGugan's ("Efficient streaming of Markdown in the
terminal"): only the last top-level block can change when text is appended. Here the items of a list are
blocks as well, and an open fence is never parsed: it is code until its closing line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from markdown_it import MarkdownIt
from markdown_it.rules_block import table
from markdown_it.token import Token


def _parser() -> MarkdownIt:
    """A parser that hides nothing of an answer: tags and definitions of references are text, a picture is a
    link. The opening line of a fence opens one whatever the next line is; it is no table's header."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("strikethrough").disable(["reference", "image"])
    parser.block.ruler.after("fence", "tables", table, {"alt": ["paragraph"]})
    return parser


PARSER = _parser()
_OUTLINE = _parser().disable("inline")
"""finds the beginnings of blocks, without parsing inside them"""
SHORT = 2_000
"""characters of an open block that are parsed anew whenever it grows"""
GROWTH = 1 / 8
"""share by which a longer one must have grown to be parsed again: a few parses in all"""


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of Markdown; the ``source`` of code is the text between the fences.

    ``language`` is the first word after the opening fence, ``label`` the rest of that line.
    """

    kind: Literal["prose", "code"]
    source: str
    language: str = ""
    joined: bool = False
    """True if it is an item of the same list as the block before: no empty line between them"""
    label: str = ""


@dataclass(frozen=True, slots=True)
class _Fence:
    """The opening line of a fence that is not closed yet."""

    opening: str
    token: Token

    @property
    def ends(self) -> re.Pattern[str]:
        """The lines that close it."""
        mark, least = re.escape(self.token.markup[0]), len(self.token.markup)
        return re.compile(rf"^ {{0,3}}{mark}{{{least},}}[ \t]*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Unit:
    """A top-level block or an item of a list, by the line where it begins."""

    line: int
    token: Token
    list: str = ""
    """the mark of its list, if it is an item"""


class Blocks:
    """Cuts text into blocks: :meth:`append` and :meth:`finish` return the finished ones."""

    def __init__(self) -> None:
        self._tail = ""
        self._parsed = 0
        self._fence: _Fence | None = None
        self._seen = 0
        """offset up to which the end of the fence was searched"""
        self._list = ""
        """the mark of the last block's list, if it was an item"""

    @property
    def open(self) -> Block | None:
        """The block that still grows; None if there is none."""
        if self._fence is not None:
            return _of_fence(self._fence.token, self._tail)
        if not self._tail.strip():
            return None
        begins = _units(self._tail.lstrip("\n").partition("\n")[0])
        return Block("prose", self._tail, joined=bool(begins) and self._joins(begins[0]))

    def append(self, text: str) -> list[Block]:
        """Append ``text``; returns the blocks that it finishes."""
        self._tail += text.replace("\r", " ")
        return self._cut(settled=False)

    def finish(self) -> list[Block]:
        """End the text; returns the blocks that were open."""
        finished = self._cut(settled=True)
        if (fence := self._fence) is not None:
            lines = self._tail.split("\n")
            if fence.ends.match(f"{lines[-1]}\n"):
                del lines[-1]
            finished.append(_code(fence, "\n".join(lines)))
        else:
            lines = self._tail.split("\n")
            finished += [self._block(unit, "\n".join(lines[unit.line :])) for unit in _units(self._tail)]
        self._tail, self._parsed, self._fence, self._list = "", 0, None, ""
        return finished

    def _cut(self, *, settled: bool) -> list[Block]:
        """Cut off and return finished blocks; ``settled``: no more text will come."""
        finished: list[Block] = []
        while self._fence is not None or settled or self._grown():
            fence = self._fence
            ended = self._end_of_fence(fence) if fence is not None else self._ended(settled=settled)
            finished += ended
            if not ended and self._fence is fence:
                break
        return finished

    def _grown(self) -> bool:
        """True if enough text has come to parse again."""
        size = len(self._tail)
        return size <= SHORT or size - self._parsed > self._parsed * GROWTH

    def _end_of_fence(self, fence: _Fence) -> list[Block]:
        end = fence.ends.search(self._tail, self._seen)
        if end is None:
            self._seen = self._tail.rfind("\n") + 1
            return []
        body = self._tail[: max(end.start() - 1, 0)]
        self._tail = self._tail[end.end() :]
        self._fence, self._parsed, self._seen, self._list = None, 0, 0, ""
        return [_code(fence, body)]

    def _ended(self, *, settled: bool) -> list[Block]:
        """Cut off all units but the last one, which stays open, or opens a fence."""
        self._parsed = len(self._tail)
        text = self._tail if settled else _settled(self._tail)
        units = _units(text)
        if not units:
            return []
        lines = self._tail.split("\n")
        finished = [
            self._block(unit, "\n".join(lines[unit.line : after.line])) for unit, after in pairwise(units)
        ]
        last = units[-1]
        self._tail = "\n".join(lines[last.line :])
        if last.token.type == "fence" and "\n" in self._tail:
            opening, _, self._tail = self._tail.partition("\n")
            self._fence, self._seen = _Fence(opening, last.token), 0
        return finished

    def _block(self, unit: _Unit, source: str) -> Block:
        joined, self._list = self._joins(unit), unit.list
        if unit.token.type == "fence":
            return _of_fence(unit.token, unit.token.content.removesuffix("\n"))
        return Block("prose", source.rstrip(), joined=joined)

    def _joins(self, unit: _Unit) -> bool:
        return unit.list != "" and unit.list == self._list


def info_of(fence: Token) -> tuple[str, str]:
    """The language of a fence, and the rest of its opening line."""
    language, *more = fence.info.split(maxsplit=1) or [""]
    return language, "".join(more).rstrip()


def _settled(text: str) -> str:
    """``text`` without its last line, if that may still change how the line above it is read.

    So "-" below "- item" may become "---"; after an empty line no text can.
    """
    head = text[: text.rfind("\n") + 1]
    before = head[:-1].rpartition("\n")[2]
    return head if before.strip() else text


def _units(text: str) -> list[_Unit]:
    units: list[_Unit] = []
    for token in _OUTLINE.parse(text):
        if token.map is None or token.nesting < 0:
            continue
        if token.level == 0 and not token.type.endswith("_list_open"):
            units.append(_Unit(token.map[0], token))
        elif token.level == 1 and token.type == "list_item_open":
            units.append(_Unit(token.map[0], token, token.markup))
    return units


def _code(fence: _Fence, body: str) -> Block:
    """The code of a fence, with its indentation removed as the parser does."""
    (token,) = _OUTLINE.parse(f"{fence.opening}\n{body}\n{fence.token.markup}")
    return _of_fence(fence.token, token.content.removesuffix("\n"))


def _of_fence(token: Token, source: str) -> Block:
    language, label = info_of(token)
    return Block("code", source, language, label=label)
