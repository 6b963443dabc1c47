"""Keys: with a suggestion they act on it, without one they keep their earlier mappings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nvim.editor import NONE, SINGLE, Editor

pytestmark = pytest.mark.slow

BEFORE = {
    "plain": "vim.keymap.set('i', '<Tab>', 'plain')",
    "recursive": "vim.cmd('inoremap <F5> deep'); vim.keymap.set('i', '<Tab>', '<F5>', { remap = true })",
    "expr": "vim.keymap.set('i', '<Tab>', function() return 'ex' .. 'pr' end, { expr = true })",
    "lua": "vim.keymap.set('i', '<Tab>', function() vim.api.nvim_put({ 'lua' }, 'c', false, true) end)",
    "vim": "vim.cmd([[inoremap <silent> <expr> <Tab> 'v' .. 'im']])",
    "itself": "vim.cmd([[imap <expr> <Tab> pumvisible() ? '<C-n>' : '<Tab>']])",
    "itself, Lua": "vim.keymap.set('i', '<Tab>', function() return '<Tab>x' end,{expr = true, remap = true})",
    "itself first": "vim.cmd('imap <Tab> <Tab>x')",
}
"""mappings of other plugins or of the user"""
TYPED = {
    **{"plain": "plain", "recursive": "deep", "expr": "expr", "lua": "lua", "vim": "vim"},
    **{"itself": "\t", "itself, Lua": "\tx", "itself first": "\tx"},
}
"""the text that each mapping types"""


def fresh(editor: Editor, before: str) -> None:
    """No mappings but this, and then the plugin's."""
    editor.setup(keys=False)
    editor.lua("vim.cmd('mapclear!'); " + before)
    editor.setup()


@pytest.mark.parametrize("kind", BEFORE)
def test_tab_without_a_suggestion_is_what_it_was(editor: Editor, tmp_path: Path, kind: str) -> None:
    fresh(editor, BEFORE[kind])
    editor.setup()  # a second time, with the keys of the first in place
    editor.lua("require('localspec').set('automatic', false)")
    editor.open(tmp_path / "a.txt", "x")
    editor.keys("<Tab>")
    editor.until_text("x" + TYPED[kind])
    editor.lua("require('localspec').set('automatic', true)")
    (row,) = editor.until_suggested(tmp_path / "b.py")
    editor.keys("<Tab>")
    editor.until_text(SINGLE + row)
    editor.setup(keys=False)
    editor.open(tmp_path / "c.txt", "y")
    editor.keys("<Tab>")
    editor.until_text("y" + TYPED[kind])


def test_tab_that_is_not_mapped_is_a_tab(editor: Editor, tmp_path: Path) -> None:
    fresh(editor, "")
    editor.setup(automatic=False)
    editor.open(tmp_path / "a.txt", "x")
    editor.keys("<Tab>")
    editor.until_text("x\t")
    editor.lua("vim.bo.expandtab, vim.bo.softtabstop = true, 4")
    editor.keys("<Tab>")
    editor.until(lambda: editor.text.endswith(" "), "it is made of blanks")


def test_a_buffer_s_own_mapping_comes_first(editor: Editor, tmp_path: Path) -> None:
    """As in Neovim: a mapping for one buffer takes precedence there."""
    fresh(editor, "")
    editor.open(tmp_path / "a.py", SINGLE[:-1] + "\n")
    editor.lua("""vim.keymap.set("i", "<Tab>", function()
      return require("localspec").accept() and "" or "own"
    end, { buffer = true, expr = true })""")
    editor.keys("<Tab>")
    editor.until_text(SINGLE[:-1] + "own")
    editor.keys("<BS><BS><BS>" + SINGLE[-1])
    (row,) = editor.until_ghost()
    editor.keys("<Tab>")
    editor.until_text(SINGLE + row)


def test_other_keys_and_none(editor: Editor, tmp_path: Path) -> None:
    fresh(editor, "")
    editor.setup(keys={"accept": "<C-y>", "next": False, "trigger": "<C-l>", "dismiss": False})
    (row,) = editor.until_suggested(tmp_path / "a.py")
    editor.keys("<C-y>")
    editor.until_text(SINGLE + row)
    for key in ("<Tab>", "<M-]>", "<C-]>"):
        assert editor.lua("return vim.fn.maparg(..., 'i')", key) == ""
    editor.setup(automatic=False, keys={"trigger": "<C-l>"})
    assert editor.lua("return vim.fn.maparg('<C-y>', 'i')") == ""
    editor.open(tmp_path / "b.py", SINGLE + "\n")
    editor.keys("<C-l>")
    editor.until_ghost()


def test_a_key_that_is_mapped_afterwards_keeps_its_mapping(editor: Editor, tmp_path: Path) -> None:
    fresh(editor, "")
    editor.lua("vim.keymap.set('i', '<Tab>', 'theirs')")
    editor.setup(keys={"accept": "<C-y>"})
    editor.until_suggested(tmp_path / "a.py")
    editor.keys("<Tab>")
    editor.until_text(SINGLE + "theirs")


def test_plugs_and_functions_act_as_the_keys_do(editor: Editor, tmp_path: Path) -> None:
    fresh(editor, "")
    editor.setup(keys=False)
    editor.lua("vim.keymap.set('i', '<C-y>', '<Plug>(localspec-accept)')")
    (row,) = editor.until_suggested(tmp_path / "a.py")
    editor.keys("<C-y>")
    editor.until_text(SINGLE + row)
    assert editor.until_suggested(tmp_path / "b.py") == [row]
    assert editor.lua("return require('localspec').accept()")
    editor.until_text(SINGLE + row)
    editor.lua("require('localspec').set('automatic', false)")
    editor.open(tmp_path / "c.py", NONE)
    assert not editor.lua("return require('localspec').accept()")
    editor.keys("<C-y>x")
    editor.until_text(NONE + "x")
