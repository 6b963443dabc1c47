"""Attack: text of a model, a file or a chat that commands the terminal which shows it.

A real terminal (a pty) reads every byte that the commands write; a pipe gets the model's text as it is.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from tests.cli.harness import Cli
from tests.daemon.harness import ECHO_DAEMON, DaemonProcess
from tests.folders import short_folder
from tests.models import ggufs
from tests.waiting import DEADLINE_S

pytestmark = pytest.mark.slow

CLIPBOARD, TITLE = "\x1b]52;c;aGFja2Vk\x07", "\x1b]0;owned\x1b\\"
HOSTILE = f"{CLIPBOARD}a{TITLE}b\x9d52;c;aGFja2Vk\x9cc\x9b31md\x1b[2Je\x1bPq#0\x1b\\f\u202eg\x08\x7fh"
DRAWING = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]")
"""colours, and what moves the cursor of a live line"""
COMMANDS = re.compile(
    rb"\x1b|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]|\xe2\x81[\xa6-\xa9]"
)
OWN = b"\x1b[2J"

CHUNKS = """
from localspec.cli.printer import Printer
from localspec.protocol.requests import Delta
printer = Printer()
for character in {text!r}:
    printer.delta(Delta(character, ()))
"""


class Home(Cli):
    """A home with a daemon that repeats its prompts, and a model with a hostile name."""

    def __init__(self, place: Path) -> None:
        os.environ["LLAMA_CACHE"] = str(place / "models")
        super().__init__(place)
        self.daemon = DaemonProcess(place, command=ECHO_DAEMON)  # with settings of its own
        self.environment["TERM"] = "xterm-256color"
        del self.environment["COLUMNS"]
        (place / "models").mkdir()
        shutil.copy(ggufs.DRAFT, place / "models" / f"tiny{CLIPBOARD}\x9d0;owned\x9c.gguf")
        strange = ggufs.gguf(
            [ggufs.string("general.architecture", HOSTILE), ggufs.string("general.name", HOSTILE)]
        )
        (place / "models" / "strange.gguf").write_bytes(strange)

    def shown(self, *words: str) -> bytes:
        """Return the bytes that a command sends to a terminal."""
        terminal = self.terminal(*words, encoding=None, dimensions=(50, 200))
        terminal.expect(pexpect.EOF)
        shown: bytes = terminal.before
        return shown


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with short_folder() as place:
        found = Home(place)
        yield found
        found.daemon.stop()
        del os.environ["LLAMA_CACHE"]


def check(shown: bytes, *there: bytes) -> None:
    """Nothing commands the terminal but what Rich draws, and all of ``there`` is shown."""
    assert OWN not in shown
    assert COMMANDS.findall(DRAWING.sub(b"", shown)) == [], shown
    for each in there:
        assert each in shown, shown


@pytest.mark.parametrize(
    "words",
    [
        ("run",),
        ("run", "--json"),
        ("run", "--stream-json"),
        ("run", "--raw"),
        ("run", "--private", "--stats"),
    ],
    ids=" ".join,
)
def test_an_answer(home: Home, words: tuple[str, ...]) -> None:
    check(home.shown(*words, HOSTILE), b"52;c;aGFja2Vk", b"owned")


def test_an_answer_in_pieces_of_a_character() -> None:
    terminal = pexpect.spawn(sys.executable, ["-c", CHUNKS.format(text=HOSTILE)], timeout=DEADLINE_S)
    terminal.expect(pexpect.EOF)
    check(terminal.before, b"]52;c;aGFja2Vk", b"]0;owned")


def test_an_answer_in_a_pipe_is_as_the_model_said_it(home: Home) -> None:
    assert home.process("run", HOSTILE).stdout == f"{HOSTILE} "


def test_a_completion(home: Home, tmp_path: Path) -> None:
    (tmp_path / "before.txt").write_text(HOSTILE)
    words = ("complete", "--prefix-file", str(tmp_path / "before.txt"))
    check(home.shown(*words), b"52;c;aGFja2Vk")
    assert "\x1b]52;c;" in home.process(*words).stdout


@pytest.mark.parametrize(
    "words",
    [
        ("models", "list"),
        ("models", "list", "--json"),
        ("models", "pair", "bundled"),
        ("models", "show", "strange"),
        ("models", "show", HOSTILE),
        ("run", "-m", HOSTILE, "Hello"),
        ("run", "-m", "strange", "--no-daemon", "Hello"),
        ("run", "--session", HOSTILE, "Hello"),
        ("memory", "stats"),
        ("memory", "forget", "--yes", "--workspace", "/" + HOSTILE.replace("/", "")),
        ("config", "set", HOSTILE, "1"),
        ("config", "show"),
        ("daemon", "status"),
        ("daemon", "logs"),
        ("doctor",),
        (HOSTILE,),
        ("run", f"--{HOSTILE}"),
    ],
    ids=ascii,
)
def test_a_command_that_tells_of_names(home: Home, words: tuple[str, ...]) -> None:
    check(home.shown(*words))


def test_what_a_shell_is_offered(home: Home) -> None:
    home.process("run", HOSTILE)  # its chat is called so
    command = "from localspec.cli import completers as c; print(*c.sessions(None), c.models(None), sep='\\n')"
    offered = subprocess.check_output([sys.executable, "-c", command], env=home.environment)
    assert COMMANDS.findall(offered) == [] and b"\\x1b" not in offered and b"owned" in offered


def test_the_chat(home: Home) -> None:
    home.process("run", HOSTILE)
    terminal = home.terminal("chat", "-c", encoding=None, dimensions=(40, 160))
    terminal.expect(rb"aGFja2Vk")
    terminal.sendcontrol("s")
    terminal.expect(rb"owned")
    shown = terminal.before
    terminal.close(force=True)
    for each in ("\x1b]52;", "\x1b]0;owned", "\x9d", "\x9b", "\x1bPq"):
        assert each.encode() not in shown
