"""Command lines that are none of ours: each is answered with what is near, and whose help to read."""

from __future__ import annotations

import re
import subprocess

import pexpect
import pytest

import localspec
from tests.cli.harness import Cli
from tests.waiting import DEADLINE_S

FOREIGN = re.compile(r"\b(int|float|bool|str|token|tokens|parameter|positional)\b", re.I)
"""words of the library's own messages"""
WRONG = [
    ("modles list", "", "`localspec` has no command 'modles'; did you mean models?"),
    ("pull x", "", "`localspec` has no command 'pull'; did you mean models pull?"),
    ("help", "", "`localspec` has no command 'help'; there are run, chat, complete,"),
    ("config fly", "config", "`localspec config` has no command 'fly'; there are show, set, path."),
    ("--versoin", "", "`localspec` has no option --versoin; did you mean --version?"),
    ("models -x", "models", "`localspec models` has no option -x."),
    ("run --jsn=3 x", "run", "`localspec run` has no option --jsn; did you mean --json?"),
    ("models show", "models show", "`localspec models show` needs MODEL."),
    ("config path b", "config path", "`localspec config path` takes no further argument: 'b'."),
    ("run --temperature", "run", "--temperature needs a value."),
    ("run -k four x", "run", "-k takes a whole number from 1 to 20, not 'four'."),
    ("run --backend cuda x", "run", "--backend takes auto, llama_cpp or mlx, not 'cuda'."),
    ("models load --keep-alive soon", "models load", "--keep-alive takes a number, not 'soon'."),
    ("models load --keep-alive=nan", "models load", "--keep-alive takes a number from 0 to 1000000000, not "),
    ("daemon logs -n x", "daemon logs", "-n takes a whole number, not 'x'."),
    ("models pull a/b --draft=maybe", "models pull", "--draft takes true or false, not 'maybe'."),
    ("--install-completion --shell tcsh", "--install-completion", "--shell takes bash, zsh or fish, not "),
    ("run -m a -m b x", "run", "-m is given twice."),
]


@pytest.mark.parametrize(("line", "command", "seen"), WRONG)
def test_a_mistake_is_answered_with_the_nearest_and_a_help(
    cli: Cli, line: str, command: str, seen: str
) -> None:
    done = cli(*line.split())
    assert done.returncode == 2 and not done.stdout and done.stderr.count("\n") == 1
    assert seen in done.stderr and not FOREIGN.search(done.stderr.partition("See `")[0])
    assert done.stderr.endswith(f" See `{' '.join(('localspec', *command.split()))} --help`.\n")


def test_a_word_without_end_is_not_repeated(cli: Cli) -> None:
    for line in (("x" * 5000,), ("run", "--" + "x" * 5000), ("config", "path", "x" * 5000)):
        assert len(cli(*line).stderr) < 300


def test_a_terminal_is_no_other_machine(cli: Cli) -> None:
    terminal = cli.terminal("follow")
    terminal.expect("speaks with the daemon of another machine")
    terminal.expect(pexpect.EOF)


def test_the_version_is_that_of_the_package(cli: Cli) -> None:
    done = cli.process("--version")
    assert (done.returncode, done.stdout) == (0, f"localspec {localspec.__version__}\n")


@pytest.mark.slow
def test_help_ends_quietly_when_its_pipe_is_closed(cli: Cli) -> None:
    line = f"{' '.join(cli.command)} run --help | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ("bash", "-c", line), env=cli.environment, capture_output=True, text=True, timeout=4 * DEADLINE_S
    )
    assert done.stdout.splitlines()[-1] == "0" and not done.stderr
