"""Lines of an answer that are broken between words, as they come."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

FENCES = ("```", "~~~")
NO_CELL = ("Mn", "Me", "Cf")
"""categories of characters that are drawn onto the one before"""


class Lines:
    """Text that comes in pieces, with line ends in place of blanks where a word would reach over the edge of
    a terminal. It holds the last word until that has ended. Lines of code, in fences or indented, and words
    wider than a line are left to the terminal. ``width``: columns of the terminal; 0: unknown."""

    def __init__(self, width: Callable[[], int]) -> None:
        self._width = width
        self._line = ""
        """the text's own line, so far"""
        self._held = ""
        """blanks, and the word behind them"""
        self._column = 0
        """cells before what is held"""
        self._fence = ""

    def start_line(self) -> None:
        """Note that another line of the terminal was begun meanwhile."""
        self._column = 0

    def add(self, text: str) -> str:
        """The next piece of the text, printable; returns what can be written by now."""
        return "".join(map(self._add, text))

    def _add(self, char: str) -> str:
        if char == "\n":
            shown, mark = self.end(), self._line.lstrip()[:3]
            if mark in FENCES and self._fence in ("", mark):
                self._fence = "" if self._fence else mark
            self._line, self._column = "", 0
            return shown + char
        self._line += char
        if self._fence or "\t" in self._line or self._line.startswith(("    ", *FENCES)):
            return self.end() + char
        shown = self.end() if char == " " and self._held.strip() else ""
        self._held += char
        is_full = self._column + count_cells(self._held) > self._width() and char != " "
        return shown + (self.end() if is_full or count_cells(char) > 1 else "")

    def end(self) -> str:
        """The held text, in the next line where it does not fit into this one."""
        held, self._held = self._held, ""
        if not held:
            return ""
        width, word = self._width(), held.lstrip(" ")
        self._column += count_cells(held)
        if not 0 < width < self._column:
            return held
        if word == held:  # the terminal goes on in its next line
            self._column = max(count_cells(held[-1]), self._column - width)
            return held
        self._column = count_cells(word)
        return f"\n{word}" if word else ""


def count_cells(text: str) -> int:
    """The columns of a terminal that a text without control characters takes."""
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.category(char) in NO_CELL for char in text)
