"""The chat in a real terminal: tmux draws it, types into it and returns its text."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from tests.waiting import until_sync

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Terminal:
    """A window of its own tmux server."""

    def __init__(self, socket: Path) -> None:
        self._tmux = ("tmux", "-S", str(socket), "-f", "/dev/null")

    def _run(self, *arguments: str) -> str:
        done = subprocess.run((*self._tmux, *arguments), capture_output=True, text=True, check=True)
        return done.stdout

    def start(self, command: str, size: tuple[int, int]) -> None:
        """Run a command in the window, which then shows its exit code, and stays."""
        # Not tmux's own remain-on-exit: now and then it misses the end of what ran.
        width, height = map(str, size)
        self._run("new-session", "-d", "-x", width, "-y", height, f"{command}; echo left with $?; exec cat")

    def keys(self, *names: str) -> None:
        self._run("send-keys", *names)

    def resize(self, width: int, height: int) -> None:
        self._run("resize-window", "-x", str(width), "-y", str(height))

    def write(self, text: str) -> None:
        self._run("send-keys", "-l", text)

    def send(self, text: str) -> None:
        self.write(text)
        self.keys("Enter")

    def pane(self) -> str:
        """Return the text on the terminal, without the blanks at the ends of lines that tmux may pad."""
        return re.sub(r" +$", "", self._run("capture-pane", "-p"), flags=re.MULTILINE)

    def until(self, condition: Callable[[str], bool], what: str) -> str:
        """Wait until the window satisfies ``condition``; returns what is seen then."""
        try:
            until_sync(lambda: condition(self.pane()), what)
        except AssertionError as error:
            raise AssertionError(f"{error}; what is seen:\n{self.pane()}") from None
        return self.pane()

    def until_shown(self, text: str, *, without: str = "\0") -> str:
        """Wait until ``text`` is seen, and ``without`` is not."""
        return self.until(lambda pane: text in pane and without not in pane, f"{text!r} is shown")

    def until_marked(self, text: str) -> None:
        """Wait until ``text`` is seen in reverse colours."""
        marked = re.compile(rf"\x1b\[[\d;]*7m(\x1b\[[\d;]+m)* {re.escape(text)}")
        until_sync(lambda: bool(marked.search(self._run("capture-pane", "-pe"))), f"{text} is marked")

    def signal(self, number: int) -> None:
        (running,) = psutil.Process(int(self._run("display-message", "-p", "#{pane_pid}"))).children()
        running.send_signal(number)

    def close(self) -> None:
        subprocess.run((*self._tmux, "kill-server"), capture_output=True, check=False)


@contextmanager
def chatting(
    home: Path, *arguments: str, size: tuple[int, int] = (100, 30), shell: str = ""
) -> Iterator[Terminal]:
    """``localspec chat`` in a terminal, or typed into ``shell`` there, on the daemon of ``home``; variables
    of another size, which a shell or Python may export, have no effect."""
    terminal = Terminal(home / f"tmux-{uuid4().hex[:8]}")
    command = shlex.join((sys.executable, "-m", "localspec", "chat", *arguments))
    variables = {"LOCALSPEC_HOME": str(home), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    variables |= {"COLUMNS": "80", "LINES": "24"}
    assignments = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    try:
        terminal.start(f"env PYTHONPATH={shlex.quote(os.getcwd())} {assignments} {shell or command}", size)
        if shell:
            terminal.write(f"{command}\n")
        terminal.until_shown("sk something")
        yield terminal
    finally:
        terminal.close()
