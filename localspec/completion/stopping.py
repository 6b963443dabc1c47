"""The end of a completion, found while it is generated, so that no text is generated that is not shown."""

from __future__ import annotations

import re

from localspec.completion.gap import Gap, has_words, indentation
from localspec.completion.syntax import closes_for_others, is_open, opens

BLOCK = 8
"""lines of the longest block whose repetition is found"""
THRICE = 3
CHANT = re.compile(r"(.{3,32}?)\1{3,}\Z")
"""the same few characters repeated at the end of an unfinished line"""
CHANT_EVERY, CHANT_WINDOW, CHANT_SURE = 16, 160, 8
"""characters of a line between two checks for a chant, characters checked, and least characters repeated"""


class StopRule:
    """Finds the end of a completion fed in pieces; it depends on the text alone, never on the pieces. One
    ends before a line that is indented less than the cursor's (blank lines do not count), before one that is
    the file's next line, at a repetition, with the line if the gap is of a single line, and with the
    statement before the cursor if the file goes on behind it (:attr:`Gap.goes_on`)."""

    def __init__(self, gap: Gap) -> None:
        self._gap = gap
        self._text = ""
        self._start = 0
        self._blank = True
        self._lines: list[tuple[str, int]] = []
        """finished lines without trailing blanks, and the offsets of their ends"""
        self._indent: int | None = len(indentation(gap.before)) if gap.before.strip() else None

    def feed(self, piece: str) -> int | None:
        """Add text; return the number of characters of all text to keep once it has ended, else None."""
        fed = len(self._text)
        self._text += piece
        for at, char in enumerate(piece, fed):
            cut = self._end_of_line(at) if char == "\n" else self._inside(at, char)
            if cut is not None:
                return cut
        return None

    def _end_of_line(self, at: int) -> int | None:
        line = self._text[self._start : at].rstrip()
        end = self._start + len(line)
        if self._gap.single_line:
            return end
        if self._stands_behind(line):
            return self._lines[-1][1] if self._lines else 0
        self._lines.append((line, end))
        self._start, self._blank = at + 1, True
        return self.find_repetition()

    def _stands_behind(self, line: str) -> bool:
        """Return True if the finished ``line`` is the file's next line, and not of a block of the text's own.
        A first line with words may be one that goes on differently."""
        following = self._gap.following[:1]
        if not self._lines:  # the cursor's, with any indentation
            line, following = (self._gap.before + line).lstrip(), [each.lstrip() for each in following]
        if following != [line] or has_words(line):
            return following == [line] and bool(self._lines)
        before = self._text[: self._start]
        return not opens(line, self._gap.prefix + before) and closes_for_others(before + line, self._start)

    def find_repetition(self) -> int | None:
        """The end of the first of the last blocks, if they are equal."""
        texts = [line for line, _ in self._lines[-2 * BLOCK :]]
        for size in range(1, BLOCK + 1):
            times = THRICE if size == 1 else 2
            blocks = [texts[len(texts) - size * n : len(texts) - size * (n - 1)] for n in range(1, times + 1)]
            alike = len(texts) >= size * times and all(block == blocks[0] for block in blocks)
            if alike and has_words("".join(blocks[0])):
                return self._lines[-1 - size * (times - 1)][1]
        return None

    def _inside(self, at: int, char: str) -> int | None:
        column = at - self._start
        if self._blank and not char.isspace():
            self._blank = False
            return self._first_of_line(column)
        if column and column % CHANT_EVERY == 0:
            return self._chant(at + 1)
        return None

    def _chant(self, end: int) -> int | None:
        """The end of the first repetition of the last few characters, if they are repeated."""
        line = self._text[max(self._start, end - CHANT_WINDOW) : end]
        # In any chant these occur once more; nearly always they do not, and the check is cheap.
        if line.find(line[-CHANT_SURE:], 0, -1) < 0:
            return None
        chant = CHANT.search(line)
        if chant is None or not has_words(chant[1]):
            return None
        return end - len(chant[0]) + len(chant[1])

    def _first_of_line(self, column: int) -> int | None:
        """The cut at a line's first character, which shows its indentation."""
        if self._indent is None:
            # The cursor's line had only blanks, or the completion left it blank.
            on_cursor_line = not self._lines
            own = column if on_cursor_line and not self._gap.repeats(self._text[:column]) else 0
            self._indent = len(self._gap.before) + own
            if on_cursor_line:
                return None
        if self._lines and self._is_behind(column):
            return len(self._text[: self._start].rstrip())
        return None

    def _is_behind(self, column: int) -> bool:
        """Return True if a line of this indentation is behind the cursor's block or statement."""
        if self._gap.goes_on < 0:
            return self._indent is not None and column < self._indent
        return column <= self._gap.goes_on and not is_open(self._gap.before + self._text[: self._start])
