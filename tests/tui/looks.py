"""Helpers for tests of painted lines."""

from __future__ import annotations

from textual.strip import Strip
from textual.theme import BUILTIN_THEMES

from localspec.tui.look import Look
from localspec.tui.painter import GUTTER, Painter

THEME = BUILTIN_THEMES["textual-dark"]
LOOK = Look.of(dark=True, colours=THEME.to_color_system().generate())


def painter(width: int, *, by_source: bool = False) -> Painter:
    return Painter(width + GUTTER, LOOK, by_source=by_source)


def texts(lines: list[Strip]) -> list[str]:
    """Return the text of lines, without gutter and trailing blanks."""
    return [line.text[GUTTER:].rstrip() for line in lines]
