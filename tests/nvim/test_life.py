"""End and restart of the daemon, the server, the command and Neovim itself."""

from __future__ import annotations

import shlex
from pathlib import Path

import psutil
import pytest

from localspec.client import discovery
from tests.daemon.harness import gone
from tests.editors.found import NEOVIMS
from tests.nvim.editor import COMMAND, MULTI, SINGLE, Editor, editing
from tests.waiting import DEADLINE_S, until_sync

pytestmark = pytest.mark.slow


def daemon() -> psutil.Process:
    found = discovery.find()
    assert found is not None
    return psutil.Process(found.pid)


def servers(editor: Editor) -> list[psutil.Process]:
    children = psutil.Process(editor.process.pid).children(recursive=True)
    return [each for each in children if "lsp" in each.cmdline()]


def problem(editor: Editor) -> str:
    name, message = editor.lua("return { require('localspec.server').state() }")
    return str(message) if name == "error" else ""


@pytest.mark.parametrize("who", ["daemon", "server"])
def test_what_is_shown_outlives_its_server(editor: Editor, tmp_path: Path, who: str) -> None:
    editor.lua("vim.o.cmdheight = 5")  # for Neovim's own message of a server that was killed
    shown = editor.until_suggested(tmp_path / "a.py")
    (old,) = servers(editor)
    victim = daemon() if who == "daemon" else old
    victim.kill()
    until_sync(lambda: gone(victim), "it has ended")
    assert editor.ghost == shown
    editor.keys("<Tab>")
    editor.until(lambda: editor.text == SINGLE + shown[0], "it is accepted")
    editor.until_suggested(tmp_path / "b.py", MULTI)
    assert len(servers(editor)) == 1 and (servers(editor) == [old]) == (who == "daemon")


def test_learning_is_stopped_and_begun_again_after_the_end_of_its_server(
    editor: Editor, tmp_path: Path
) -> None:
    prime = f"require('localspec.commands').run('prime {tmp_path}')"
    editor.lua("vim.o.cmdheight = 5")
    editor.until_suggested(tmp_path / "a.py")
    (old,) = servers(editor)
    old.suspend()
    editor.lua(f"{prime} {prime}")
    editor.until_notice("stopped; what was learnt so far is kept")
    editor.lua(prime)
    old.kill()
    editor.until(lambda: "not running" in editor.lua("return require('localspec').statusline()"), "its end")
    editor.lua(prime)
    editor.until_notice("no git repository")


def test_a_daemon_that_cannot_start_is_reported_once(editor: Editor, home: Path, tmp_path: Path) -> None:
    editor.until_suggested(tmp_path / "a.py")
    config = home / "config" / "config.toml"
    right = config.read_text()
    config.write_text(right + "[options]\nmodel = 1\n")
    try:
        victim = daemon()
        victim.kill()
        until_sync(lambda: gone(victim), "it has ended")
        editor.open(tmp_path / "b.py", MULTI + "\n")
        editor.type("a")
        editor.until(lambda: str(config) in problem(editor), "it is reported")
        editor.type("bc")
        editor.until_text(MULTI + "abc")
        assert len(editor.notices()) == 1
        assert editor.lua("return require('localspec').statusline()") == "localspec error"
    finally:
        config.write_text(right)
    editor.keys("<M-]>")
    editor.until_ghost()
    editor.until(lambda: not problem(editor), "the problem is over")


def test_a_missing_command_is_reported_once_and_found_later(editor: Editor, tmp_path: Path) -> None:
    program = tmp_path / "localspec"
    editor.setup(command=str(program))
    editor.open(tmp_path / "a.py", SINGLE[:-3] + "\n")
    editor.type(SINGLE[-3:])
    editor.until_notice("(:Localspec status)")
    assert problem(editor).startswith(f"The command {program} was not found. Install localspec")
    assert editor.text == SINGLE and len(editor.notices()) == 1
    program.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    program.chmod(0o755)
    editor.keys("<M-]>")
    editor.until_ghost()


@pytest.mark.parametrize("version", NEOVIMS)
@pytest.mark.parametrize("end", ["quits", "is killed"])
def test_the_server_ends_with_neovim_and_the_daemon_goes_on(
    version: str, end: str, home: Path, tmp_path: Path
) -> None:
    with editing(version, home) as editor:
        editor.until_suggested(tmp_path / "a.py")
        (server,) = servers(editor)
        if end == "quits":
            editor.keys("<Esc>:quitall!<CR>")
        else:
            editor.process.kill()
        editor.process.wait(DEADLINE_S)
        until_sync(lambda: gone(server), "the server has ended")
    assert not gone(daemon())
