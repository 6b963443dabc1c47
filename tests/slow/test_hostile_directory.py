"""Attack: a directory whose files have the names of all modules that anything of ours may import.

Everything that localspec starts is started from there, and none of the files may be run.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.service.service import daemon_job
from tests.folders import short_folder
from tests.memory.hostile_repository import repository
from tests.waiting import DEADLINE_S, until_sync

pytestmark = pytest.mark.slow

COMMAND = Path(sys.executable).with_name("localspec")
NAMES = sorted(
    {*sys.stdlib_module_names, *importlib.metadata.packages_distributions(), "sitecustomize", "usercustomize"}
)
CONFIG = "[engine]\nthreads = 1\n[daemon]\nport = 0\n[http]\nenabled = true\nport = 0\n"


class Trap:
    """A directory whose files record the processes that run them, and a home elsewhere."""

    def __init__(self, place: Path) -> None:
        self.directory, self.notes, self.home = place / "hostile", place / "notes", place / "home"
        self.directory.mkdir()
        note = f"import sys; print(__name__, *sys.orig_argv, file=open({str(self.notes)!r}, 'a'))\n"
        for name in NAMES:
            if name.isidentifier():
                (self.directory / f"{name}.py").write_text(note)
        gdb = f"shell echo .gdbinit >> {self.notes}\n"
        (self.directory / ".gdbinit").write_text(gdb)
        repository(self.directory)
        (self.home / "config").mkdir(parents=True)
        (self.home / "config" / "config.toml").write_text(CONFIG)
        # A relative path means the directory of who says it.
        self.environment = {**os.environ, "LOCALSPEC_HOME": os.path.relpath(self.home, self.directory)}

    def run(self, *words: str, input: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            (COMMAND, *words),
            cwd=self.directory,
            env=self.environment,
            input=input,
            capture_output=True,
            text=True,
            timeout=4 * DEADLINE_S,
        )

    def works(self, *words: str, input: str = "") -> str:
        done = self.run(*words, input=input)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    @contextlib.contextmanager
    def daemon(self, *command: str | Path) -> Iterator[None]:
        """A daemon that this command begins in the hostile directory."""
        with (
            open(self.home / "said", "ab") as said,
            subprocess.Popen(command, cwd=self.directory, env=self.environment, stderr=said) as process,
        ):
            try:
                socket = self.home / "runtime" / "daemon.json"
                until_sync(lambda: socket.exists() or process.poll() is not None, "it listens")
                yield
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(DEADLINE_S)

    def uses_everything(self) -> None:
        """All kinds of processes that a daemon starts: a worker, the memory's, the HTTP server."""
        self.works("run", "--max-tokens", "4", input="def f(x):")
        self.works("memory", "stats")
        until_sync(lambda: "HTTP server: http://" in self.works("daemon", "status"), "the door is open")
        self.works("models", "unload")

    def check(self) -> None:
        assert not self.notes.exists(), self.notes.read_text()


@pytest.fixture
def trap() -> Iterator[Trap]:
    with short_folder() as place:
        trap = Trap(place)
        yield trap
        trap.run("daemon", "stop")


def test_a_daemon_that_is_run_there(trap: Trap) -> None:
    with trap.daemon(COMMAND, "daemon", "run", "--http"):
        trap.uses_everything()
    trap.check()


def test_a_daemon_that_a_command_starts_there(trap: Trap) -> None:
    trap.works("daemon", "start")
    trap.uses_everything()
    trap.check()


def test_the_daemon_of_a_service(trap: Trap) -> None:
    with trap.daemon(*daemon_job({}).command):
        trap.uses_everything()
    trap.check()


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--no-daemon", "--max-tokens", "4", "Hello"),
        ("complete", "--no-daemon", "--max-tokens", "4"),
        ("models", "list"),
        ("config", "show"),
        ("memory", "prime", "--model", "bundled", "."),
        ("daemon", "token"),
    ],
    ids=" ".join,
)
def test_a_command_there(trap: Trap, words: tuple[str, ...]) -> None:
    trap.works(*words, input="def f(x):\n    return")
    trap.check()


def test_the_doctor_there(trap: Trap) -> None:
    assert re.search(r"^ok +llama_cpp ", trap.run("doctor").stdout, re.MULTILINE)
    trap.check()


def test_what_editors_start_there(trap: Trap) -> None:
    trap.run("lsp", input="\n")
    trap.check()
