"""The real command, in a home of its own: in the tests' process, or in one of its own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pexpect
import pytest

from localspec.cli.main import run
from localspec.models import index
from tests.waiting import DEADLINE_S

CONFIG = "[engine]\nthreads = 1\n"
LONG = ("run", "--temperature", "0", "--proposer", "none", "What does textwrap.dedent do?")
"""a request that goes on for a while: greedy text of a small model repeats itself to the end"""


class Cli:
    """Runs ``localspec`` with this home."""

    def __init__(self, home: Path) -> None:
        self.home = home
        (home / "config").mkdir(parents=True, exist_ok=True)
        (home / "config" / "config.toml").write_text(CONFIG)
        self.environment = {**os.environ, "LOCALSPEC_HOME": str(home), "COLUMNS": "200"}
        self.command = (sys.executable, "-m", "localspec")

    def __call__(
        self, *arguments: str, input: str = "", cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the command in this process, which has its imports loaded; return its output and exit code."""
        stdin, stdout, stderr = (_stream(text) for text in (input, "", ""))
        with pytest.MonkeyPatch.context() as patch:
            for name in set(os.environ) - set(self.environment):
                patch.delenv(name)
            for name, value in self.environment.items():
                patch.setenv(name, value)
            if cwd is not None:
                patch.chdir(cwd)
            patch.setattr(index, "_recent", index._Recent())  # a new command has not looked at the disk yet
            for name, stream in (("stdin", stdin), ("stdout", stdout), ("stderr", stderr)):
                patch.setattr(sys, name, stream)
            code = run(arguments)
        said, seen = (stream.buffer.getvalue().decode() for stream in (stdout, stderr))
        return subprocess.CompletedProcess(arguments, code, said, seen)

    def process(
        self, *arguments: str, input: str = "", cwd: Path | None = None, timeout: float = 4 * DEADLINE_S
    ) -> subprocess.CompletedProcess[str]:
        """The command in a process of its own, as a shell starts it."""
        return subprocess.run(
            (*self.command, *arguments),
            capture_output=True,
            text=True,
            env=self.environment,
            cwd=cwd,
            timeout=timeout,
            **({"input": input} if input else {"stdin": subprocess.DEVNULL}),
        )

    def json(self, *arguments: str, input: str = "") -> Any:
        """The one JSON object that a command prints; it must succeed."""
        done = self(*arguments, "--json", input=input)
        assert done.returncode == 0, done.stderr + done.stdout
        (line,) = done.stdout.splitlines()
        return json.loads(line)

    def begin(self, *arguments: str, stdin: IO[bytes] | int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """Start a command and return when its first output is there."""
        process = subprocess.Popen(
            (*self.command, *arguments),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
        )
        assert process.stdout is not None
        assert process.stdout.read(1), process.communicate()
        return process

    def terminal(self, *arguments: str, **settings: Any) -> pexpect.spawn:
        command, *rest = (*self.command, *arguments)
        usual = {"env": self.environment, "timeout": DEADLINE_S, "encoding": "utf-8", "dimensions": (24, 200)}
        return pexpect.spawn(command, rest, **usual | settings)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.json("daemon", "status")
        return found

    def worker_pid(self) -> int:
        (model,) = self.status()["models"]
        return int(model["pid"])


def ended(terminal: pexpect.spawn) -> int | None:
    """Wait for the end of what runs on a terminal; its exit code."""
    terminal.expect(pexpect.EOF)
    terminal.close()
    code: int | None = terminal.exitstatus
    return code


class _Stream(io.TextIOWrapper):
    """A text stream on memory; what was written is there at once."""

    buffer: io.BytesIO


def _stream(text: str) -> _Stream:
    return _Stream(io.BytesIO(text.encode()), encoding="utf-8", newline="", write_through=True)
