"""Every command has a description and examples, and the examples run."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import App
from rich.console import Console

from localspec.cli.app import app
from localspec.cli.output import EXAMPLES
from localspec.errors import ExitCode
from localspec.models.catalogue import bundled_model
from tests.cli.harness import Cli
from tests.waiting import DEADLINE_S

NOT_RUN = re.compile(
    ".*localspec (chat|service|purge|rpc|follow|models (pull|rm)|bench( --|$)|memory forget --w)|.*--follow"
)
"""examples that do not end, need an answer of a user, or would change what is outside of the test"""


def commands(of: App, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command, groups included."""
    yield path
    for name in of:
        if name not in ("--help", "-h", "--version"):
            yield from commands(of[name], (*path, name))


ALL = [" ".join(path) for path in commands(app)]


def examples(command: str) -> list[str]:
    """The examples at the end of a command's help; a command without its own has those of its group."""
    found = app
    for word in command.split():
        found = found[word]
    _, _, lines = str(found.help_epilogue or "").partition(EXAMPLES)
    return [line.strip() for line in lines.splitlines()]


@pytest.mark.parametrize("command", ALL)
def test_help_has_a_summary_and_examples(command: str) -> None:
    shown = io.StringIO()
    app.help_print(command.split(), console=Console(width=80, file=shown))
    lines = shown.getvalue().splitlines()
    usage, summary = shown.getvalue().split("\n\n")[:2]
    assert usage.startswith(f"Usage: localspec {command}".rstrip()) and "[ARGS" not in usage
    assert summary[0].isupper() and summary.rstrip().endswith((".", ").")), summary
    assert max(map(len, lines)) <= 80 and len(lines) < 80
    assert len(found := examples(command)) <= 4 and all("localspec " in line for line in found)
    assert lines[len(lines) - len(found) :] == [f"  {line}" for line in found]


def test_the_exit_codes_are_all_listed(cli: Cli) -> None:
    help = " ".join(cli("--help").stdout.split())
    (codes,) = re.findall(r"Exit codes: (.*?)\. Examples", help)
    assert {int(number) for number in re.findall(r"\b(\d+) [a-zA-Z]", codes)} == set(ExitCode)


@pytest.fixture(scope="module")
def project(cli: Cli) -> Path:
    """A directory in which the examples make sense."""
    folder = cli.home / "project"
    (folder / "src").mkdir(parents=True)
    for name in ("app.py", "before.py", "after.py", "src/util.py"):
        (folder / name).write_text(f"def {Path(name).stem}(a, b):\n    return a + b\n")
    for command in ("init -q", "add app.py"):
        subprocess.run(("git", *command.split()), cwd=folder, check=True)
    (folder / "app.py").write_text("def app(a, b, c):\n    return a + b + c\n")
    answers = Path(__file__).parent.parent / "bench" / "data" / "answers.jsonl"
    (folder / "answers.jsonl").symlink_to(answers)
    program = cli.home / "bin" / "localspec"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {" ".join(cli.command)} "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{cli.environment['PATH']}"
    cli.environment |= {"PATH": path, "HOME": str(cli.home), "SHELL": "/bin/bash"}
    # No example says how long an answer may be.
    config = cli.home / "config" / "config.toml"
    shutil.copy(bundled_model("stdlib-1m"), folder / "qwen2.5-coder-0.5b.gguf")  # for the name alone
    dirs = f"model_dirs = [{str(folder)!r}]\n"
    config.write_text(dirs + config.read_text() + "[options]\nmax_tokens = 4\n")
    return folder


RUN = [line for command in ALL for line in examples(command) if not NOT_RUN.match(line)]
AFTER = {
    "localspec run -c": "localspec run hi",
    "localspec daemon status": "localspec daemon start",
    "localspec config set n_ctx --unset": "localspec config set n_ctx 4096",
}
"""commands to run before an example that begins with the key: the order of all examples is not fixed"""


def in_bash(cli: Cli, project: Path, line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ("bash", "-c", f"set -o pipefail; {line}"),
        cwd=project,
        env=cli.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=8 * DEADLINE_S,
    )


@pytest.mark.slow
@pytest.mark.parametrize("line", dict.fromkeys(RUN))
def test_an_example_runs(cli: Cli, project: Path, line: str) -> None:
    for before in (before for begins, before in AFTER.items() if line.startswith(begins)):
        assert in_bash(cli, project, before).returncode == ExitCode.OK
    done = in_bash(cli, project, line)
    assert done.returncode == ExitCode.OK, done.stderr
