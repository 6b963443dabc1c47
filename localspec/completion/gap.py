"""The gap that a completion fills: the lines around the cursor, and the limit to one line."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from localspec.completion.language import comment_mark, in_comment
from localspec.protocol.requests import FimPrompt

FOLLOWING = 64
"""lines before and after the cursor that are compared"""


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
        """The cursor's line up to the cursor."""
        return self.prefix.rpartition("\n")[2]

    @cached_property
    def after(self) -> str:
        """The rest of the cursor's line."""
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
    def line_end(self) -> str:
        """The line end of this file."""
        return "\r\n" if "\r\n" in self.prefix[-4096:] or "\r\n" in self.suffix[:4096] else "\n"


def indentation(line: str) -> str:
    """The leading blanks of a line."""
    return line[: len(line) - len(line.lstrip(" \t"))]


def has_words(text: str) -> bool:
    """Return True if ``text`` has letters or digits."""
    return any(char.isalnum() for char in text)
