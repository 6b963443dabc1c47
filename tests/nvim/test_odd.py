"""Buffers, windows and ways to type that are not the usual ones: nothing breaks, and no message appears."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nvim.editor import SINGLE, Editor
from tests.nvim.test_life import servers

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def quiet(editor: Editor) -> object:
    yield
    assert editor.notices() == []
    assert not editor.lua("return vim.api.nvim_exec('messages', true)").count("E5108")


@pytest.mark.parametrize(
    "leave",
    [
        "vim.cmd('noautocmd bwipeout!')",
        "vim.cmd('noautocmd enew!')",
        "vim.cmd('noautocmd new')",
        "vim.api.nvim_buf_set_lines(0, 0, 1, true, { 'changed' })",
        "vim.bo.modifiable = false",
    ],
)
def test_an_answer_that_comes_too_late_is_not_shown(editor: Editor, tmp_path: Path, leave: str) -> None:
    editor.until_suggested(tmp_path / "a.py")
    (server,) = servers(editor)
    editor.open(tmp_path / "b.py", SINGLE[:-1])
    asked = len(editor.asked)
    server.suspend()  # so that it answers only afterwards
    editor.type(SINGLE[-1])
    editor.until(lambda: len(editor.asked) > asked, "it is asked")
    editor.lua("vim.o.eventignore = 'all'")  # so that the request is not cancelled
    editor.lua("LATE = #SPOKEN; " + leave)
    server.resume()
    editor.until(lambda: editor.lua("return SPOKEN[LATE].items"), "it is answered")
    editor.lua("vim.o.eventignore = ''")
    editor.settled()
    assert not editor.ghost
    assert not editor.lua("return require('localspec').is_visible()")


def test_what_cannot_be_changed_any_more_is_not(editor: Editor, tmp_path: Path) -> None:
    editor.until_suggested(tmp_path / "a.py")
    editor.lua("vim.bo.modifiable = false")
    assert not editor.lua("return require('localspec').accept()")
    editor.lua("vim.bo.modifiable = true")
    assert editor.lua("return require('localspec').accept()")


def test_another_window_on_the_same_buffer(editor: Editor, tmp_path: Path) -> None:
    (row,) = editor.until_suggested(tmp_path / "a.py")
    editor.keys("<C-o>:split<CR>")
    editor.keys("<C-o><C-w>w")
    editor.until_no_ghost()
    editor.keys("<C-o>:only<CR>x<BS>")
    editor.until(lambda: editor.ghost == [row], "it is drawn again")
    editor.keys("<Tab>")
    editor.until_text(SINGLE + row)


def test_a_dot_repeats_what_was_typed(editor: Editor, tmp_path: Path) -> None:
    (row,) = editor.until_suggested(tmp_path / "a.py")
    editor.keys("<Tab>")
    editor.until_text(SINGLE + row)
    editor.type("!")
    editor.lua("require('localspec').set('automatic', false)")
    editor.keys("<Esc>o<Esc>")
    editor.settled()
    editor.keys("k.")
    editor.settled()
    assert row not in editor.text.replace(SINGLE + row, "")


def test_a_macro_is_recorded_and_replayed_as_typed(editor: Editor, tmp_path: Path) -> None:
    """A macro records the accepting key, which is a tab where no suggestion is shown."""
    editor.open(tmp_path / "a.py", SINGLE[:-1] + "\n")
    editor.keys("<Esc>qqA" + SINGLE[-1])
    (row,) = editor.until_ghost()
    editor.keys("<Tab><Esc>q")
    editor.until_text(SINGLE + row)
    assert editor.expr("@q").startswith("A.")
    editor.open(tmp_path / "b.py", "import os\n" + SINGLE[:-1] + "\n")
    editor.lua("vim.bo.expandtab = false")
    editor.keys("<Esc>@q")
    editor.settled()
    editor.until_text("import os\n" + SINGLE + "\t")


PLACES = ["q:i", "R", ":terminal cat<CR>i"]
PLACES += [f":new<CR>:set buftype={kind}<CR>i" for kind in ("prompt", "nofile")]


@pytest.mark.parametrize("place", PLACES)
def test_where_nothing_is_asked(editor: Editor, tmp_path: Path, place: str) -> None:
    editor.setup(automatic=False)
    editor.open(tmp_path / "a.py", "x\n")
    editor.keys("<Esc>")
    editor.settled()
    editor.lua("require('localspec').set('automatic', true); SPOKEN = {}")
    editor.keys(place + "abc")
    editor.settled()
    asked = editor.asked
    editor.keys("<C-Bslash><C-n>:<C-c>:silent! %bwipeout!<CR>")
    editor.settled()
    assert asked == []


def test_a_very_long_line(editor: Editor, tmp_path: Path) -> None:
    editor.open(tmp_path / "a.py", SINGLE + " 日" + "x" * 500_000 + "\n")
    editor.keys("<Esc>")
    editor.lua("vim.api.nvim_win_set_cursor(0, { 3, 12 })")
    editor.keys("a")
    editor.until(lambda: editor.expr("mode()") == "i", "text is inserted")
    editor.lua("SPOKEN = {}; require('localspec').trigger()")
    editor.until(lambda: any(each.get("items") for each in editor.asked), "it is answered")
    assert editor.cursor == (3, 13)
