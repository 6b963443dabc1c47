"""A daemon that is started on a full disk: a real file system of one megabyte, filled to the last byte."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.harness import Cli

pytestmark = pytest.mark.slow


class Disk(Cli):
    """A home of which some places lie on a small disk, and the command with that home."""

    def __init__(self, home: Path, *places: str) -> None:
        super().__init__(home)
        self.disk = home / "disk"
        self.disk.mkdir()
        try:
            subprocess.run(
                ("mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=100,mode=0700", "none", self.disk),
                check=True,
                capture_output=True,
            )
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("no file system can be mounted")
        for place in places:
            (self.disk / place).mkdir(mode=0o700)
            (home / place).symlink_to(self.disk / place)

    def fill(self) -> None:
        with (self.disk / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))

    def crowd(self) -> None:
        """Fill it with files instead of bytes."""
        with contextlib.suppress(OSError):
            for number in range(1000):
                (self.disk / f"file-{number}").touch()

    def empty(self) -> None:
        (self.disk / "ballast").unlink()

    def works(self, *words: str) -> str:
        done = self.process(*words)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout + done.stderr

    def answer(self, *words: str) -> Any:
        """The answer as JSON, or the error."""
        return json.loads(self.process(*words, "--json").stdout)


@contextlib.contextmanager
def disk(*places: str) -> Iterator[Disk]:
    home = Path(tempfile.mkdtemp(prefix="ls")).resolve()
    found = None
    try:
        found = Disk(home, *places)
        yield found
    finally:
        if found is not None:
            found.process("daemon", "stop")
            subprocess.run(("umount", "--lazy", found.disk), check=True)
        shutil.rmtree(home, ignore_errors=True)


@pytest.mark.parametrize("places", [("state",), ("cache",), ("data",), ("data", "state", "cache")], ids=str)
@pytest.mark.parametrize("fill", [Disk.fill, Disk.crowd], ids=["bytes", "files"])
def test_a_daemon_starts_where_only_records_cannot_be_written(
    places: tuple[str, ...], fill: Callable[[Disk], None]
) -> None:
    with disk(*places) as full:
        fill(full)
        told = full.works("run", "--max-tokens", "4", "Hello")
        assert ("chats are kept in memory only" in told) == ("data" in places)
        for words in (("run", "-c", "More"), ("run", "--private", "Hello"), ("run", "--raw", "def f(x):")):
            full.works(*words, "--max-tokens", "4")
        assert ("chats are kept in memory only" in full.works("daemon", "status")) == ("data" in places)


def test_the_chats_of_before_are_there_again_when_there_is_room() -> None:
    with disk("data") as full:
        output = full.works("run", "--stats", "--max-tokens", "4", "First")
        session = output.split("; session ")[1].split()[0]
        full.works("daemon", "stop")
        full.fill()
        (full.disk / "data" / "history.sqlite-shm").unlink(missing_ok=True)
        error = full.answer("run", "--session", session, "Second")["error"]
        assert error["code"] == "disk_full", error
        full.works("run", "--max-tokens", "4", "Elsewhere")
        full.empty()
        full.works("daemon", "restart")
        third = full.answer("run", "--session", session, "--max-tokens", "4", "Third")
        assert third["finish_reason"] == "length"
        assert "chats are kept" not in full.works("daemon", "status")


def test_a_daemon_that_cannot_say_where_it_is_is_shown_as_such() -> None:
    with disk("runtime", "state") as full:
        full.fill()
        assert full.answer("run", "Hello")["error"]["code"] == "disk_full"
        full.works("run", "--no-daemon", "--max-tokens", "4", "Hello")
