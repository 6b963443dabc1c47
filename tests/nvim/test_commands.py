"""``:Localspec …``, the status line, and ``:checkhealth localspec``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from localspec._version import __version__
from localspec.client import discovery
from tests.memory.hostile_repository import repository
from tests.nvim.editor import COMMAND, NONE, SINGLE, Editor

pytestmark = pytest.mark.slow


def command(editor: Editor, words: str = "") -> None:
    editor.lua("vim.cmd('Localspec ' .. ...)", words)


def statusline(editor: Editor) -> str:
    return str(editor.lua("return require('localspec').statusline()"))


def status(editor: Editor) -> str:
    return str(editor.lua("return vim.api.nvim_exec('Localspec status', true)")).strip()


def choose(editor: Editor, number: int) -> None:
    """Have the editor's dialogs answered by this one of the answers; ``ASKED`` is the question."""
    editor.lua(
        """
        local number = ...
        vim.fn.inputlist = function(lines) ASKED = lines[1]; return number end
        vim.ui.select = function(items, options, done) ASKED = options.prompt; done(items[number], number) end
        """,
        number,
    )


def offered(editor: Editor, line: str) -> list[Any]:
    return list(editor.lua("return vim.fn.getcompletion(..., 'cmdline')", line))


def is_asked(editor: Editor, path: Path) -> bool:
    editor.open(path, NONE)
    editor.type("x")
    editor.settled()
    return bool(editor.asked)


def test_toggle_enable_disable(editor: Editor, tmp_path: Path) -> None:
    editor.until_suggested(tmp_path / "a.py")
    command(editor, "toggle")
    editor.until_no_ghost()
    assert statusline(editor) == "localspec off"
    assert not is_asked(editor, tmp_path / "b.py")
    command(editor, "toggle")
    assert is_asked(editor, tmp_path / "b.py")
    command(editor, "disable")
    command(editor, "disable")
    assert not is_asked(editor, tmp_path / "b.py")
    command(editor, "enable")
    assert is_asked(editor, tmp_path / "b.py")


def test_for_a_buffer_or_a_language(editor: Editor, tmp_path: Path) -> None:
    editor.open(tmp_path / "a.py", NONE)
    command(editor, "disable buffer")
    assert statusline(editor) == "localspec off"
    assert is_asked(editor, tmp_path / "b.py")
    command(editor, "toggle language")
    assert not is_asked(editor, tmp_path / "c.py")
    assert is_asked(editor, tmp_path / "c.rb")
    editor.open(tmp_path / "d.py", NONE)
    command(editor, "enable language")
    assert is_asked(editor, tmp_path / "e.py")
    editor.lua("vim.b.localspec_enabled = 0")
    command(editor, "toggle buffer")
    assert statusline(editor) != "localspec off"
    command(editor, "enable universe")
    editor.until_notice('"universe" is none of: buffer, language')


def test_status_tells_what_was_gained(editor: Editor, tmp_path: Path) -> None:
    editor.until_suggested(tmp_path / "a.py")
    editor.until(lambda: statusline(editor).startswith("localspec · stdlib-6m"), "it is in the status line")
    assert status(editor).startswith("localspec: stdlib-6m")


def test_restart_starts_another_daemon(editor: Editor, tmp_path: Path) -> None:
    editor.until_suggested(tmp_path / "a.py")
    before = discovery.find()
    editor.lua("vim.o.cmdheight = 5")
    command(editor, "restart")
    editor.until_notice("The daemon has started again")
    editor.until_suggested(tmp_path / "b.py")
    after = discovery.find()
    assert before is not None and after is not None and before.pid != after.pid


def test_a_model_is_chosen_by_name_or_from_a_list(editor: Editor, tmp_path: Path) -> None:
    editor.until_suggested(tmp_path / "a.py")
    editor.lua("vim.o.cmdheight = 5")
    command(editor, "model stdlib-1m")
    editor.until_notice("Completions now come from stdlib-1m")
    editor.keys("<M-]>")
    editor.until(lambda: "stdlib-1m" in status(editor), "it is in the status")
    choose(editor, 1)
    command(editor, "model")
    editor.until_notice("Completions now come from stdlib-6m")
    assert editor.lua("return ASKED").startswith("Which model should write completions?")
    command(editor, "model nothing-of-this-name")
    editor.until_notice("no fill-in-the-middle model is named nothing-of-this-name")
    command(editor, "model auto")
    editor.until_notice("Completions now come from the configured model")


def test_a_workspace_is_learnt_and_forgotten(editor: Editor, tmp_path: Path) -> None:
    repository(tmp_path)
    editor.open(tmp_path / "a.py", SINGLE)
    command(editor, "prime")
    editor.until_notice("of 1 file.")
    choose(editor, 1)
    command(editor, "forget")
    editor.until_notice("Forgot ")
    assert editor.lua("return ASKED").startswith(f"Forget all that localspec has learnt in {tmp_path}?")


@pytest.mark.parametrize("root", ["module", "app [slug] *,;"])
@pytest.mark.parametrize("is_file", [False, True], ids=["repository", "submodule"])
def test_the_nearest_repository_is_the_workspace(
    editor: Editor, tmp_path: Path, root: str, is_file: bool
) -> None:
    (tmp_path / ".git").mkdir()
    place = tmp_path / root
    (place / "pages").mkdir(parents=True)
    if is_file:
        (place / ".git").write_text("gitdir: ../.git/modules/module\n")
    else:
        (place / ".git").mkdir()
    editor.open(place / "pages" / "a.py", SINGLE)
    choose(editor, 2)
    editor.lua("ASKED = ''")
    command(editor, "forget")
    question = f"Forget all that localspec has learnt in {place}?"
    editor.until(lambda: editor.lua("return ASKED").startswith(question), "it is asked")


def test_a_path_may_have_spaces(editor: Editor, tmp_path: Path) -> None:
    repository(tmp_path)
    for name in ("my", "my dir"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").write_text(SINGLE)
    editor.lua("vim.o.cmdheight = 5")
    for typed in ("my dir", "my\\ dir"):
        command(editor, f"prime {tmp_path}/{typed}")
        editor.until_notice("of 1 file.")
        editor.until(
            lambda: not editor.lua("return next(vim.lsp.get_clients()[1].requests)"), "all is answered"
        )
        editor.lua("vim.cmd('messages clear')")
    assert offered(editor, f"Localspec prime {tmp_path}/my d") == ["dir/"]


def test_learning_that_never_began_can_be_begun_again(editor: Editor, tmp_path: Path) -> None:
    program, learnt = tmp_path / "localspec", tmp_path / "learnt.py"
    learnt.write_text("import os\n")
    editor.lua("vim.o.cmdheight = 5")
    editor.setup(command=str(program))
    command(editor, f"prime {learnt}")
    editor.until_notice("was not found")
    program.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    program.chmod(0o755)
    command(editor, f"prime {learnt}")
    editor.until_notice("Learnt ")


def test_words_are_offered_and_others_refused(editor: Editor) -> None:
    names = ["disable", "enable", "forget", "model", "prime", "restart", "status", "toggle", "trigger"]
    assert offered(editor, "Localspec ") == names
    assert offered(editor, "Localspec t") == ["toggle", "trigger"]
    assert offered(editor, "Localspec toggle ") == ["buffer", "language"]
    command(editor, "frobnicate")
    editor.until_notice(f'"frobnicate" is none of: {", ".join(names)}')


def health(editor: Editor) -> str:
    editor.keys("<Esc>")
    editor.settled()
    editor.lua("vim.cmd('checkhealth localspec')")
    editor.until(lambda: "Keys" in editor.text, "all was looked at")
    text = editor.text
    editor.lua("vim.cmd('bwipeout!')")
    return text


def test_health_of_what_is_well(editor: Editor) -> None:
    text = health(editor)
    assert __version__ in text and "<Tab>: accept" in text and "localspec doctor" in text


def test_health_of_a_command_that_is_missing_or_fails(editor: Editor, tmp_path: Path) -> None:
    program = tmp_path / "localspec"
    editor.setup(command=str(program))
    assert f"the command {program} was not found" in health(editor)
    program.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    program.chmod(0o755)
    assert f"{program} --version failed: broken" in health(editor)


def test_health_of_keys_that_are_mapped_already(editor: Editor) -> None:
    editor.lua("vim.keymap.set('i', '<Tab>', 'other')")
    assert "<Tab> was mapped to something else" in health(editor)
    editor.setup(keys=False)
    assert "<Tab>" not in health(editor)
