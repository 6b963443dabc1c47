"""The gap that a completion fills: the lines around the cursor, and the limit to one line."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from localspec.completion.syntax import comment_mark, in_comment, opens_block
from localspec.protocol.requests import FimPrompt

FOLLOWING = 64
"""lines before and after the cursor that are compared"""
AROUND = 32
"""lines before and after the cursor whose indentations are the file's levels"""


@dataclass(frozen=True)
class Gap:
    """The text before and after the cursor. Lines are without their ends, which in the text can be ``\\n`` or
    ``\\r\\n``."""

    prefix: str
    suffix: str
    language: str | None = None
    path: str | None = None
    multiline: bool = True

    @classmethod
    def of(cls, prompt: FimPrompt) -> Gap:
        return cls(prompt.prefix, prompt.suffix, prompt.language, prompt.path, prompt.multiline)

    @cached_property
    def before(self) -> str:
        return self.prefix.rpartition("\n")[2]

    @cached_property
    def after(self) -> str:
        return self.suffix.partition("\n")[0].removesuffix("\r")

    @cached_property
    def following(self) -> list[str]:
        """The next lines, blank ones left out, without trailing blanks."""
        lines = self.suffix.split("\n", FOLLOWING + 1)[1 : FOLLOWING + 1]
        return [line.rstrip() for line in lines if line.strip()]

    @cached_property
    def preceding(self) -> list[str]:
        """The lines before the cursor's, the nearest last, blank ones left out, without trailing blanks."""
        lines = self.prefix.rsplit("\n", FOLLOWING + 1)[:-1][-FOLLOWING:]
        return [line.rstrip() for line in lines if line.strip()]

    @cached_property
    def single_line(self) -> bool:
        """True if the completion ends with the cursor's line: if requested, if text follows on it, and in a
        line comment."""
        mark = comment_mark(self.language, self.path)
        return not self.multiline or bool(self.after.strip()) or in_comment(self.before, mark)

    @cached_property
    def goes_on(self) -> int:
        """The indentation of the next line, if a line of code before the cursor is of its block or opens it;
        else -1. A statement begun there ends before a line that is indented no more. Behind the opening of a
        block that has lines already, further ones are written."""
        if not self.before.strip() or not self.following:
            return -1
        here, after = len(indentation(self.before)), len(indentation(self.following[0]))
        return after if here == after or (here < after and not opens_block(self.before)) else -1

    def repeats(self, blanks: str) -> bool:
        """Return True if ``blanks``, with which a completion begins, stand before the cursor already. A level
        more is meant only if the line above opens a block, and the cursor does not stand in it yet; and so is
        what reaches one of the file's levels from beside them."""
        if not blanks or not self.before or self.before.strip():
            return False
        near = (*self.preceding[-AROUND:], *self.following[:AROUND])
        known = {indentation(line) for line in near} - {""} or {self.before}
        unit = "\t" if any("\t" in each for each in known) else " " * min(map(len, known))
        levels = {"", *known} | {level + unit for level in ("", *known)}
        if self.before not in levels:
            return self.before + blanks not in levels
        above = self.preceding[-1] if self.preceding else ""
        return not opens_block(above) or self.before + blanks != indentation(above) + unit

    @cached_property
    def line_end(self) -> str:
        return "\r\n" if "\r\n" in self.prefix[-4096:] or "\r\n" in self.suffix[:4096] else "\n"


def indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def has_words(text: str) -> bool:
    return any(char.isalnum() for char in text)
