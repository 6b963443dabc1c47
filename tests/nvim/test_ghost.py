"""Suggestions in a real Neovim: drawn, typed along, accepted, dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.nvim.editor import MULTI, NONE, SINGLE, Editor, completion, completions

pytestmark = pytest.mark.slow


def rows(text: str) -> list[str]:
    return [line for line in text.replace("\r", "").split("\n") if line.strip()]


def suggested(editor: Editor, path: Path, prefix: str, **where: Any) -> str:
    """Type the last letter of ``prefix``; the suggestion that the daemon has, once it is drawn."""
    editor.open(path, prefix[:-1] + "\n")
    editor.type(prefix[-1])
    text = completion(prefix, path=str(path), **where)
    assert editor.until_ghost() == rows(text), editor.asked
    assert editor.text == prefix, "nothing is in the buffer yet"
    return text


def prefixes(editor: Editor) -> list[str]:
    return [each["prefix"] for each in editor.asked]


@pytest.mark.parametrize("prefix", [SINGLE, MULTI], ids=["single", "multi"])
def test_it_is_drawn_accepted_and_undone(editor: Editor, tmp_path: Path, prefix: str) -> None:
    text = suggested(editor, tmp_path / "a.py", prefix)
    editor.keys("<Tab>")
    editor.until_text(prefix + text)
    lines = (prefix + text).split("\n")
    assert editor.cursor == (len(lines), len(lines[-1]))
    assert editor.reported[:2] == [("shown",), ("accepted",)]
    editor.until(lambda: prefix + text in prefixes(editor), "what comes next is asked")
    editor.type("x")
    editor.until_text(prefix + text + "x")
    editor.keys("<Esc>u")
    editor.until_text(prefix + text)
    editor.keys("u")
    editor.until_text(prefix)


def test_typing_along_asks_nothing_and_going_back_brings_it_back(editor: Editor, tmp_path: Path) -> None:
    text = suggested(editor, tmp_path / "a.py", MULTI)
    asked = len(editor.asked)
    first = text.split("\n")[1]
    editor.lua("vim.bo.indentexpr, vim.bo.autoindent = '', false")
    editor.type("\n" + first[:6])
    editor.until(lambda: editor.ghost == rows(text[7:]), "the rest is drawn")
    editor.keys("<BS><BS>")
    editor.until(lambda: editor.ghost == rows(text[5:]), "what was taken back is drawn again")
    editor.keys("<Tab>")
    editor.until_text(MULTI + text)
    spoken = editor.asked
    assert len(spoken) <= asked + 1, "what comes after it alone was asked"


def test_typing_something_else_drops_it(editor: Editor, tmp_path: Path) -> None:
    suggested(editor, tmp_path / "a.py", SINGLE)
    editor.type("q")
    editor.until(lambda: prefixes(editor)[-1] == SINGLE + "q", "it is asked")
    assert not editor.asked[-1]["is_invoked"]


def test_the_next_word_and_the_next_line(editor: Editor, tmp_path: Path) -> None:
    text = suggested(editor, tmp_path / "a.py", MULTI)
    line = text.split("\n")[1]
    editor.keys("<M-Right>")
    word = "\n    " + line.split()[0]
    editor.until_text(MULTI + word)
    assert editor.until_ghost() == rows(text[len(word) :])
    editor.keys("<M-Down>")
    editor.until_text(MULTI + "\n" + line)
    editor.keys("<M-Down>")
    editor.until_text(MULTI + "\n".join(text.split("\n")[:3]))
    editor.keys("<Tab>")
    editor.until_text(MULTI + text)
    chars = [len(word), len("\n" + line), len("\n".join(text.split("\n")[:3]))]
    expected = [("shown",), *(("partial", count) for count in chars), ("accepted",)]
    assert editor.reported[:5] == expected


def test_what_is_dismissed_comes_again_when_the_text_changes(editor: Editor, tmp_path: Path) -> None:
    suggested(editor, tmp_path / "a.py", SINGLE)
    editor.keys("<C-]>")
    editor.until_no_ghost()
    editor.keys("<Left><Right>")
    editor.settled()
    assert not editor.ghost and len(editor.asked) <= 2
    editor.keys("x<BS>")
    assert editor.until_ghost()


@pytest.mark.parametrize("key", ["<Left>", "<Esc>"])
def test_moving_the_cursor_or_leaving_insert_mode_drops_it(editor: Editor, tmp_path: Path, key: str) -> None:
    suggested(editor, tmp_path / "a.py", SINGLE)
    editor.keys(key)
    editor.until_no_ghost()
    assert editor.text == SINGLE


def test_others_are_shown_in_turn(editor: Editor, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    editor.open(path, SINGLE + "\n")
    editor.lua("require('localspec').trigger()")
    first = editor.until_ghost()
    editor.keys("<M-]>")
    editor.until(lambda: editor.ghost != first, "another one is shown")
    texts = completions(SINGLE, path=str(path), trigger="invoked", n=3)
    assert len(texts) > 1 and first == rows(texts[0])
    editor.until(lambda: editor.ghost == rows(texts[1])[:22], "the second one is shown")
    editor.keys("<M-[>")
    editor.until(lambda: editor.ghost == first, "the first one is shown")
    editor.keys("<M-[>")
    editor.until(lambda: editor.ghost == rows(texts[-1])[:22], "the last one is shown")
    editor.keys("<Tab>")
    editor.until_text(SINGLE + texts[-1])
    assert editor.reported[:5] == [("shown",)] * 4 + [("accepted",)]
    assert len([each for each in editor.asked if each["is_invoked"]]) == 1


def test_a_key_asks_even_where_the_model_is_unsure(editor: Editor, tmp_path: Path) -> None:
    editor.setup(automatic=False)
    editor.open(tmp_path / "a.py", SINGLE[:-1])
    editor.type(SINGLE[-1])
    editor.settled()
    assert editor.asked == []
    editor.keys("<M-]>")
    assert editor.until_ghost() == rows(completion(SINGLE, trigger="invoked"))


def test_in_the_middle_of_a_line(editor: Editor, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    editor.open(path, SINGLE + " 日本\n")
    editor.keys("<Left><Left><Left>")
    editor.lua("require('localspec').trigger()")
    text = completion(SINGLE, " 日本\n", path=str(path), trigger="invoked")
    assert editor.until_ghost() == rows(text)
    row = editor.screen.lines()[2]
    assert row.replace(" ", "") == f"        self.{text} 日本".replace(" ", "")
    assert editor.screen.cursor == (2, len("        self."))
    editor.keys("<Tab>")
    editor.until_text(SINGLE + text + " 日本")
    assert editor.cursor == (3, len("        self." + text))


def test_a_file_with_carriage_returns_keeps_them_single(editor: Editor, tmp_path: Path) -> None:
    prefix, path = MULTI.replace("\n", "\r\n"), tmp_path / "a.py"
    editor.open(path, prefix + "\r\n")
    assert editor.expr("&fileformat") == "dos"
    editor.keys("<M-]>")
    first = editor.until_ghost()
    editor.keys("<M-]>")
    editor.until(lambda: editor.ghost and editor.ghost != first, "another one is shown")
    text = completions(prefix, "\r\n", path=str(path), trigger="invoked", n=3)[1]
    assert "\r\n" in text and editor.ghost == rows(text)
    editor.keys("<Tab>")
    editor.until_text((prefix + text).replace("\r", ""))
    editor.keys("<Esc>:write<CR>")
    editor.until(lambda: path.read_bytes().decode() == prefix + text + "\r\n", "it is written")


def test_no_option_changes_what_is_accepted(editor: Editor, tmp_path: Path) -> None:
    editor.open(tmp_path / "a.py", "")
    editor.lua("vim.o.textwidth, vim.o.autoindent, vim.o.cindent, vim.o.expandtab = 12, true, true, false")
    editor.keys("<Esc>:iabbrev return WRONG<CR>")
    text = suggested(editor, tmp_path / "b.py", MULTI)
    editor.keys("<Tab>")
    editor.until_text(MULTI + text)
    editor.lua("vim.o.textwidth, vim.o.autoindent, vim.o.cindent = 0, true, false; vim.cmd('iabclear')")


def test_the_popup_menu_hides_it(editor: Editor, tmp_path: Path) -> None:
    editor.lua("vim.o.completeopt = 'menu,menuone'")  # other tests' buffers may have no second match
    suggested(editor, tmp_path / "a.py", SINGLE)
    editor.type("n")
    editor.keys("<C-n>")
    editor.until(lambda: editor.expr("pumvisible()"), "the menu is there")
    editor.settled()
    assert not editor.ghost
    before = editor.text
    editor.keys("<C-e>")
    editor.until(lambda: not editor.expr("pumvisible()"), "the menu is closed")
    editor.lua("vim.cmd('set completeopt&')")
    assert editor.text in (before, SINGLE + "n")


def test_nothing_is_requested_where_nothing_may_be_sent(editor: Editor, tmp_path: Path) -> None:
    editor.setup(exclude=["python"])
    editor.open(tmp_path / "b.py", NONE)
    editor.type("x")
    editor.settled()
    editor.setup(enabled=False)
    editor.open(tmp_path / "c.txt", NONE)
    editor.type("x")
    editor.settled()
    assert editor.asked == []
    assert editor.lua("return require('localspec').statusline()") == "localspec off"
