"""The chat as people have it: in a terminal, with a daemon of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from localspec.client import connect
from localspec.errors import EngineBusy
from tests.agent.test_agent import FUNCTIONS, start
from tests.client.conftest import own_home
from tests.tui.terminal import Terminal, chatting, needs_tmux
from tests.waiting import run

pytestmark = [needs_tmux, pytest.mark.slow]
QUESTION = "What does textwrap.dedent do?"
KEYS = "Enter Send Ctrl-J New line F1 Help Ctrl-O Models Ctrl-N New"
"""the foot of a window of 60 columns"""
GREEDY = ("--temperature", "0", "--proposer", "none")


def ask(terminal: Terminal) -> None:
    """Send a message, and wait until the answer runs: its number of tokens is shown meanwhile."""
    terminal.send(QUESTION)
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
        terminal.until_shown("Ctrl-Z Suspend")
        terminal.keys("C-End")
        terminal.until_shown("Ctrl-P Commands")
        terminal.keys("Escape")
        terminal.until_shown(KEYS, without="Ctrl-P Commands")
        terminal.write("one two")
        terminal.until_shown("one two")
        terminal.keys("C-c")
        pane = terminal.until_shown("sk something", without="one two")
        terminal.keys("C-_")
        terminal.until_shown("one two")
        *_, status, keys = pane.splitlines()
        assert status.startswith(" stdlib-6m · auto") and keys == KEYS


def test_an_answer_is_followed_once_the_program_that_received_it_is_killed(home: Path) -> None:
    with chatting(home, *GREEDY) as first:
        ask(first)
        with chatting(home, "-c") as second:
            second.until_shown("another program is still receiving")
            first.signal(signal.SIGKILL)
            second.until_shown(" tokens · ", without="another program")
            second.keys("Escape")
            second.until_shown("\n  stopped\n", without="another program")


@pytest.mark.parametrize("size", [(100, 30), (60, 20)])
def test_figures_and_lists_are_whole_and_in_order(home: Path, size: tuple[int, int]) -> None:
    once = (sys.executable, "-m", "localspec", "run", "--max-tokens", "8", "Alone?")
    with chatting(home, "--temperature", "0", "--max-tokens", "24", size=size) as terminal:
        terminal.send("Beside?")
        pane = terminal.until_shown(" of 16,384 tokens · ")
        assert re.search(r"\n  [\d.]+ m?s · \d+ tok/s\n", pane)
        terminal.keys("C-o")
        pane = terminal.until_shown("to download: 1.1 GB · code on a laptop")
        assert re.search(
            r"answers, also one to download\.\n\n\n +stdlib-6m\n +current · toy, for tests", pane
        )
        terminal.keys("Up")
        pane = terminal.until_shown("stdlib-1m\n  toy, for tests · ")
        assert "to download" not in pane.partition("stdlib-1m")[2]
        assert "…" not in pane.rpartition("\n stdlib-6m")[0]
        terminal.keys("Escape")
        terminal.until_shown("sk something")
        terminal.keys("F2")
        value = "temperature\n  0.0 (default: the model's own, else 0.7 for chat and 0"
        assert "option, such as temperature.\n" in terminal.until_shown(value)
        terminal.keys("Escape")
        terminal.until_shown("sk something")
        subprocess.run(once, check=True, capture_output=True)
        terminal.keys("C-s")
        pane = terminal.until_shown("Alone?")
        assert pane.index("● just now") < pane.index("localspec run  Alone?")


@pytest.mark.parametrize("size", [(100, 30), (60, 20)])
def test_each_call_is_asked_for_once_and_esc_ends_one_without_an_end(size: tuple[int, int]) -> None:
    with own_home() as home:
        run(start())
        path = home / "functions.py"
        path.write_text(FUNCTIONS.replace('return {"hour": 12}', "clock.sleep(1000)"))
        with chatting(home, "--tools", str(path), size=size) as terminal:
            terminal.until_shown("functions.py: weather")
            terminal.send("call")
            pane = terminal.until_shown("─ The model calls ─")
            assert pane.count('weather {"city": "Oslo"}') == 1 and pane.count("functions.py: ") <= 1
            assert "│   Always (a)     Once (y)     No (Esc)   " in pane
            terminal.until_marked("No (Esc)")
            terminal.keys("y")
            terminal.until_shown("│ time {}")
            pane = terminal.until_shown("─ The model calls ─")
            assert pane.count("time {}") == pane.count("weather {") == 1
            terminal.keys("Left")
            terminal.until_marked("Once (y)")
            terminal.until_shown("─ The model calls ─")
            terminal.keys("Enter")
            terminal.until_shown("calling time")
            terminal.send("/tools")
            terminal.until_shown("functions.py: ")
            terminal.keys("Escape")
            pane = terminal.until_shown("\n  cancelled\n", without="functions.py: ")
            assert "user" not in pane.partition("cancelled")[0]


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
