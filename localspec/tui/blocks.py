"""Growing Markdown, cut into finished blocks, which do not change any more, and the open one.

A finished block is painted once. The idea is Will McGugan's ("Efficient streaming of Markdown in the
terminal"): only the last top-level block can change when text is appended. Here the items of a list are
blocks as well, and an open fence is never parsed: it is code until its closing line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from markdown_it import MarkdownIt
from markdown_it.rules_block import table
from markdown_it.token import Token


def _parser() -> MarkdownIt:
    """A parser that hides nothing of an answer: tags and definitions of references are text, a picture is a
    link. The opening line of a fence opens one whatever the next line is; it is no table's header. Lines of a
    paragraph stay lines, as in a poem."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("strikethrough").disable(["reference", "image"])
    parser.block.ruler.after("fence", "tables", table, {"alt": ["paragraph"]})
    return parser.disable("newline")


PARSER = _parser()
_OUTLINE = _parser().disable("inline")
"""finds the beginnings of blocks, without parsing inside them"""
SHORT = 2_000
"""characters of an open block that are parsed anew whenever it grows"""
GROWTH = 1 / 8
"""share by which a longer one must have grown to be parsed again: a few parses in all"""


@dataclass(frozen=True, slots=True)
class MarkdownBlock:
    """A piece of Markdown; the ``source`` of code is the text between the fences. ``language`` is the first
    word after the opening fence, ``label`` the rest of that line."""

    kind: Literal["prose", "code"]
    source: str
    language: str = ""
    joined: bool = False
    """True if it is an item of the same list as the block before: no empty line between them"""
    label: str = ""


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
        self._fence: Token | None = None
        """the fence that still grows"""
        self._list = ""
        """the mark of the last block's list, if it was an item"""

    @property
    def open(self) -> MarkdownBlock | None:
        """The block that still grows; None if there is none."""
        if self._fence is not None:
            return _of_fence(self._fence, self._tail.partition("\n")[2])
        if not self._tail.strip():
            return None
        begins = _units(self._tail.lstrip("\n").partition("\n")[0])
        return MarkdownBlock("prose", self._tail, joined=bool(begins) and self._joins(begins[0]))

    def append(self, text: str) -> list[MarkdownBlock]:
        last_line = self._tail.rfind("\n") + 1
        self._tail += text.replace("\r", " ")
        size = len(self._tail)
        if self._fence is not None:
            is_due = _closing(self._fence).search(self._tail, last_line) is not None
        else:
            is_due = size <= SHORT or size - self._parsed > self._parsed * GROWTH
        return self._cut(_drop_unsettled_line(self._tail)) if is_due else []

    def finish(self) -> list[MarkdownBlock]:
        finished = self._cut(self._tail)
        lines = self._tail.split("\n")
        finished += [self._block(unit, "\n".join(lines[unit.line :])) for unit in _units(self._tail)]
        self._tail, self._parsed, self._fence, self._list = "", 0, None, ""
        return finished

    def _cut(self, text: str) -> list[MarkdownBlock]:
        """Cut off all blocks of ``text`` but the last one, which stays open, unless it is a closed fence."""
        self._parsed, self._fence = len(self._tail), None
        units = _units(text)
        if not units:
            return []
        lines = self._tail.split("\n")
        ends = [unit.line for unit in units[1:]]
        last = units[-1].token
        if last.type == "fence" and (end := _end_of_fence(last, lines)):
            ends.append(end)
        finished = [
            self._block(unit, "\n".join(lines[unit.line : end]))
            for unit, end in zip(units, ends, strict=False)
        ]
        self._tail = "\n".join(lines[ends[-1] if ends else units[0].line :])
        if last.type == "fence" and len(finished) < len(units) and "\n" in self._tail:
            self._fence = last
        return finished

    def _block(self, unit: _Unit, source: str) -> MarkdownBlock:
        joined, self._list = self._joins(unit), unit.list
        if unit.token.type == "fence":
            return _of_fence(unit.token, unit.token.content.removesuffix("\n"))
        return MarkdownBlock("prose", source.rstrip(), joined=joined)

    def _joins(self, unit: _Unit) -> bool:
        return unit.list != "" and unit.list == self._list


def info_of(fence: Token) -> tuple[str, str]:
    """The language of a fence, and the rest of its opening line."""
    language, *more = fence.info.split(maxsplit=1) or [""]
    return language, "".join(more).rstrip()


def _drop_unsettled_line(text: str) -> str:
    """``text`` without its last line, if that may still change how the line above it is read. So "-" below "-
    item" may become "---"; after an empty line no text can."""
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


def _closing(fence: Token) -> re.Pattern[str]:
    mark, least = re.escape(fence.markup[0]), len(fence.markup)
    return re.compile(rf"^ {{0,3}}{mark}{{{least},}}[ \t]*\n", re.MULTILINE)


def _end_of_fence(fence: Token, lines: list[str]) -> int | None:
    """The line below a fence among ``lines``; None if it is not closed by a whole line."""
    begin, end = fence.map or (0, 0)
    is_closed = begin + 1 < end < len(lines) and _closing(fence).match(f"{lines[end - 1]}\n")
    return end if is_closed else None


def _of_fence(token: Token, source: str) -> MarkdownBlock:
    language, label = info_of(token)
    return MarkdownBlock("code", source, language, label=label)
