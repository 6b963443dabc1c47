"""Emacs' lsp-mode, in a terminal, with the configuration of the README."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from localspec.client import connect
from tests.editors.found import ROOT, Program
from tests.editors.found import emacs as found
from tests.tui.terminal import Terminal, needs_tmux
from tests.waiting import run, until_sync

pytestmark = [needs_tmux, pytest.mark.slow]

README = ROOT / "plugins" / "lsp" / "README.md"
LINES = ("import argparse\n\n\ndef main():\n    parser = argparse.Arg", "ument", "\n\n\nmain()\n")
"""the text before the cursor, the typed text, and the text behind"""
QUIET = """
(setq lsp-auto-guess-root t lsp-client-packages nil lsp-enable-snippet nil lsp-session-file "{home}/session"
      lsp-headerline-breadcrumb-enable nil native-comp-deferred-compilation nil inhibit-startup-screen t
      make-backup-files nil auto-save-default nil warning-minimum-level :emergency)
"""
"""settings that answer lsp-mode's questions in advance; no other server, no file elsewhere"""


def answered(file: Path, before: str, after: str) -> str:

    async def ask() -> str:
        async with await connect() as client:
            answer = await client.complete(before, after, language="python", path=str(file)).result()
            (item,) = answer.items
            return item.text

    return run(ask())


def path_with_command(home: Path) -> str:
    """A PATH on which `localspec` is the one that is tested."""
    command = home / "bin" / "localspec"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m localspec "$@"\n')
    command.chmod(0o755)
    return f"{command.parent}:{os.environ['PATH']}"


@contextmanager
def emacs(program: Program, home: Path, file: Path) -> Iterator[Terminal]:
    (init,) = re.findall(r"```elisp\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    # What installing a package does.
    autoloads = '(load "lsp-mode-autoloads" nil t)\n'
    (home / "init.el").write_text(QUIET.format(home=home) + autoloads + init)
    terminal = Terminal(home / "tmux")
    places = {"LOCALSPEC_HOME": str(home), "HOME": str(home), "PYTHONPATH": os.getcwd(), "TERM": "xterm"}
    words = [f"{name}={value}" for name, value in {**places, "PATH": path_with_command(home)}.items()]
    command = shlex.join(["env", *words, *program.command, "-nw", "-l", str(home / "init.el"), str(file)])
    try:
        terminal.start(command, (100, 30))
        ready = re.compile(r"LSP\[localspec:\d+\]")
        terminal.until(lambda pane: ready.search(pane) is not None, "the server is there")
        yield terminal
    finally:
        terminal.close()


def test_ghost_text_is_shown_and_accepted(home: Path, tmp_path: Path) -> None:
    program, file = found(), tmp_path / "a.py"
    subprocess.run(("git", "init", "-q", str(tmp_path)), check=True)
    file.write_text(LINES[0] + LINES[2])
    text = answered(file, LINES[0] + LINES[1], LINES[2])
    with emacs(program, home, file) as terminal:
        terminal.keys("M-g", "M-g", "5", "Enter", "C-e")
        terminal.write(LINES[1])
        terminal.until_shown(f"    parser = argparse.Argument{text}\n")
        terminal.keys("C-x", "C-s")  # which puts ghost text away
        until_sync(lambda: file.read_text() == "".join(LINES), "ghost text is no text")
        terminal.write(" ")
        terminal.keys("BSpace")
        terminal.until_shown(f"    parser = argparse.Argument{text}\n")
        terminal.keys("Tab")
        terminal.keys("C-x", "C-s")
        until_sync(lambda: file.read_text() == LINES[0] + LINES[1] + text + LINES[2], "it is accepted")
