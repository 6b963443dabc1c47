"""A picture of Neovim with a suggestion, for README: a real one's screen, cell by cell.

.venv/bin/python -m assets.neovim assets/pictures/neovim.svg
"""

from __future__ import annotations

import argparse
import io
import itertools
import re
import tempfile
from pathlib import Path

from rich.console import Console
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from assets.screenshots import settings_for
from localspec.models.catalogue import DEFAULT
from tests.client.conftest import own_home
from tests.nvim.editor import editing
from tests.nvim.screen import Look, Screen

VERSION = "0.12"
SIZE = (64, 18)
CODE = """\
class Decimal:
    def __add__(self, other, context=None):
        other = _convert_other(other)
        if other is NotImplemented:
            return other
        if context is None:
            context = getcontext()
        return self._add(other, context)

    def __sub__(self, other, context=None):
        other = _convert_other(other
"""
TYPED = ")"
LOOK = """
vim.o.laststatus, vim.o.number, vim.o.showcmd, vim.o.ruler = 2, true, false, true
vim.cmd("syntax on")
"""


def main(path: str, model: str) -> None:
    """Type, wait for the suggestion, and draw the screen."""
    settings = settings_for(model)
    with (
        own_home() as home,
        tempfile.TemporaryDirectory() as folder,
        editing(VERSION, home, init=LOOK, size=SIZE) as editor,
    ):
        (home / "config" / "config.toml").write_text(settings)
        editor.open(Path(folder) / "decimal.py", CODE)
        editor.lua("vim.cmd('lcd ' .. ...)", folder)
        editor.type(TYPED)
        editor.until_ghost()
        Path(path).write_text(svg(editor.screen), "utf-8")


def svg(screen: Screen) -> str:
    """Return a screen as SVG, without the font that it would fetch."""
    console = Console(record=True, width=screen.columns, file=io.StringIO(), force_terminal=True)
    for number, row in enumerate(screen.cells):
        styled = [
            (style_of(screen, cell.look, is_cursor=(number, column) == screen.cursor), cell.text)
            for column, cell in enumerate(row)
        ]
        line = Text()
        for style, run in itertools.groupby(styled, key=lambda each: each[0]):
            line.append("".join(text for _, text in run), style)
        console.print(line, soft_wrap=True)
    foreground, background = rgb(screen.foreground), rgb(screen.background)
    theme = TerminalTheme(background, foreground, [(0, 0, 0)] * 8)
    drawn = console.export_svg(title="nvim decimal.py", theme=theme)
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)


def style_of(screen: Screen, look: Look, *, is_cursor: bool) -> Style:
    """Return a cell's style for Rich; the cursor is drawn as a block."""
    foreground = screen.foreground if look.foreground is None else look.foreground
    background = screen.background if look.background is None else look.background
    return Style(
        color=f"#{foreground:06x}",
        bgcolor=f"#{background:06x}",
        bold=look.bold,
        italic=look.italic,
        reverse=look.reverse != is_cursor,
    )


def rgb(colour: int) -> tuple[int, int, int]:
    """Return red, green and blue of a colour."""
    return colour >> 16, colour >> 8 & 0xFF, colour & 0xFF


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", metavar="FILE.svg")
    parser.add_argument("--model", default=DEFAULT)
    given = parser.parse_args()
    main(given.file, given.model)
