"""The chat as people have it: in a terminal, with a daemon of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from localspec.client import connect
from localspec.errors import EngineBusy
from tests.tui.terminal import Terminal, chatting, needs_tmux
from tests.waiting import run

pytestmark = [needs_tmux, pytest.mark.slow]
QUESTION = "What does textwrap.dedent do?"
KEYS = "Enter Send Ctrl-J New line F1 Help Ctrl-O Models Ctrl-N New"
"""the foot of a window of 60 columns"""
GREEDY = ("--temperature", "0", "--proposer", "none")


def ask(terminal: Terminal, question: str = QUESTION) -> None:
    """Send a message, and wait until the answer runs: its number of tokens is shown meanwhile."""
    terminal.write(question)
    terminal.keys("Enter")
    terminal.until_shown("tokens · ")


@pytest.mark.parametrize(("key", "shown"), [("Right", "Enter sends"), ("C-s", "Ctrl-D deletes")])
def test_the_screen_is_whole_again_after_ctrl_z_and_fg(home: Path, key: str, shown: str) -> None:
    with chatting(home, shell="bash --norc --noprofile") as terminal:
        terminal.keys(key)
        terminal.until_shown(shown)
        terminal.keys("C-z")
        terminal.until_shown("Stopped")
        terminal.resize(60, 20)
        terminal.write("fg\n")
        terminal.until(lambda pane: shown in pane and pane.splitlines()[-1] == KEYS, "all of it is painted")


def test_a_small_terminal_shows_the_model_all_keys_and_clears_the_field(home: Path) -> None:
    with chatting(home, size=(60, 20)) as terminal:
        terminal.until_shown("a toy (13.3 MB), good for tests only.")
        terminal.keys("F1")
        terminal.until(lambda pane: "send" in pane and "this list" in pane, "all keys are shown")
        terminal.keys("Escape")
        terminal.write("one two")
        terminal.until_shown("one two")
        terminal.keys("C-c")
        pane = terminal.until(lambda pane: "sk something" in pane and "one two" not in pane, "it is cleared")
        *_, status, keys = pane.splitlines()
        assert status.startswith(" stdlib-6m · auto") and keys == KEYS


def test_it_leaves_with_what_a_shell_can_use(home: Path) -> None:
    with chatting(home) as terminal:
        terminal.keys("C-q")
        terminal.until_shown("left with 0")


@pytest.mark.parametrize("closed_by", ["its end", "SIGTERM", "SIGQUIT"])
def test_a_private_chat_ends_with_its_terminal(home: Path, closed_by: str) -> None:
    async def until_nothing_is_private() -> None:
        async with await connect() as client:
            while True:
                try:
                    return await client.shutdown(if_idle=True)
                except EngineBusy:
                    pass

    with chatting(home, "--private", *GREEDY) as terminal:
        ask(terminal)
        terminal.keys("Escape")
        terminal.until_shown("stopped")
        if closed_by == "its end":
            terminal.close()
        else:
            number = signal.Signals[closed_by]
            terminal.signal(number)
            terminal.until_shown(f"left with {128 + number}")
        run(until_nothing_is_private())


def test_without_a_terminal_that_can_show_it_there_is_a_sentence(home: Path) -> None:
    command, dumb = (sys.executable, "-m", "localspec", "chat"), {**os.environ, "TERM": "dumb"}
    leader, window = os.openpty()
    ends = ((subprocess.DEVNULL, None, "stdin is not one"), (window, dumb, "TERM=dumb cannot"))
    for stdin, variables, why in ends:
        done = subprocess.run(
            command, stdin=stdin, stdout=window, stderr=subprocess.PIPE, text=True, env=variables
        )
        assert done.returncode == 2 and f"a chat needs a terminal, and {why}" in done.stderr
    os.set_blocking(leader, False)
    with pytest.raises(BlockingIOError):
        os.read(leader, 1)
