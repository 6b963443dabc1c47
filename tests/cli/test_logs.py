"""The log as a person reads it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.cli.harness import Cli
from tests.waiting import DEADLINE_S


@pytest.fixture
def log(cli: Cli) -> Path:
    """A log that was cut twice: lines 1 to 9, three in each file."""
    path = cli.home / "state" / "daemon.log"
    path.parent.mkdir(exist_ok=True)
    for file, first in (("daemon.log.2", 1), ("daemon.log.1", 4), ("daemon.log", 7)):
        path.with_name(file).write_text("".join(f"line {n}\n" for n in range(first, first + 3)))
    return path


@pytest.mark.parametrize("count", [0, 1, 3, 5, 9, 50])
def test_the_last_lines_come_from_older_files_too(cli: Cli, log: Path, count: int) -> None:
    lines = cli("daemon", "logs", "-n", str(count)).stdout.splitlines()
    assert lines == [f"line {n}" for n in range(1, 10)][max(9 - count, 0) :]


def test_what_is_no_text_or_would_command_the_terminal_is_replaced(cli: Cli, log: Path) -> None:
    log.write_bytes(b"caf\xe9\n" + "a\x1b[2J\rb\u2028c\n".encode())
    assert cli("daemon", "logs", "-n", "2").stdout == "caf\ufffd\na\ufffd[2J\ufffdb\u2028c\n"


def test_without_a_log_it_says_when_there_will_be_one(cli: Cli, log: Path) -> None:
    for path in log.parent.glob("daemon.log*"):
        path.unlink()
    done = cli("daemon", "logs")
    assert (done.returncode, done.stdout) == (0, "") and "There is no log yet" in done.stderr


def test_following_shows_what_comes_also_after_the_log_was_cut(cli: Cli, log: Path) -> None:
    process = cli.begin("daemon", "logs", "--follow", "-n", "1")
    assert process.stdout is not None
    assert process.stdout.readline() == b"ine 9\n"
    with open(log, "a") as writer:
        writer.write("\x1b[31mline 10\nline ")
        writer.flush()
        assert process.stdout.readline() == "\ufffd[31mline 10\n".encode()
        writer.write("11\n")
        writer.flush()
        assert process.stdout.readline() == b"line 11\n"
        log.write_text("")
        writer.write("a\n")
    assert process.stdout.readline() == b"a\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
