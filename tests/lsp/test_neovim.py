"""Neovim 0.12's own inline completion, with the configuration of the README."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.client import connect
from tests.editors.found import neovim as found
from tests.lsp.neovim import Neovim, neovim
from tests.waiting import run, until_sync

pytestmark = pytest.mark.slow

LINES = ("import argparse\n\n\ndef main():\n    parser = argparse.Arg", "ument", "\n\n\nmain()\n")
"""the text before the cursor, the typed text, and the text behind"""


def answered(file: Path, before: str, after: str) -> str:
    """The daemon's own completion there."""

    async def ask() -> str:
        async with await connect() as client:
            answer = await client.complete(before, after, language="python", path=str(file)).result()
            (item,) = answer.items
            return item.text

    return run(ask())


def written(tmp_path: Path) -> Path:
    file = tmp_path / "a.py"
    file.write_text(LINES[0] + LINES[2])
    return file


def type_it(editor: Neovim) -> None:
    """Type at the end of the fifth line."""
    editor.type("5GA" + LINES[1])


def test_ghost_text_is_shown_and_accepted(home: Path, tmp_path: Path) -> None:
    program, file = found("0.12"), written(tmp_path)
    text = answered(file, LINES[0] + LINES[1], LINES[2])
    first, *others = text.split("\n")
    with neovim(program, home, file) as editor:
        type_it(editor)
        editor.shows(f"    parser = argparse.Argument{first}", *others)
        assert editor.text == "".join(LINES), "ghost text is no text"
        editor.type("<Tab>")
        until_sync(lambda: editor.text == LINES[0] + LINES[1] + text + LINES[2], "it is accepted")


def test_lines_end_as_the_file_has_them(home: Path, tmp_path: Path) -> None:
    program, file = found("0.12"), tmp_path / "c.py"
    before = "class Error(Exception):\r\n    def __str__(self):\r\n        return self.mess"
    file.write_bytes(f"{before}\r\n".encode())
    text = answered(file, before + "age", "\r\n")
    first, *others = text.split("\r\n")
    assert others
    with neovim(program, home, file) as editor:
        editor.type("3GAage")
        editor.shows(f"        return self.message{first}", *others)
        editor.type("<Tab>")
        until_sync(lambda: others[-1] in editor.text, "it is accepted")
        editor.type("<Esc>:w<CR>")
        until_sync(lambda: file.read_bytes() == f"{before}age{text}\r\n".encode(), "it is written")
