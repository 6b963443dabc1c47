"""Every command has a description and examples, and the examples run."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest
from cyclopts import App
from rich.console import Console

from localspec.cli.app import app
from localspec.cli.examples import EXAMPLES
from localspec.errors import ExitCode
from localspec.models.bundled import bundled_model
from tests.cli.harness import Cli
from tests.waiting import DEADLINE_S

NOT_RUN = {
    "daemon run": "does not end",
    "service install": "would change the services of whoever runs the tests",
    "service uninstall": "would change the services of whoever runs the tests",
    "service status": "asks for services where there may be none",
    "models pull": "asks the hub",
    "models rm": "removes what was pulled",
    "config edit": "opens an editor",
    "lsp": "speaks with an editor",
    "bench": "takes minutes",
    "localspec doctor --json": "takes seconds once more",
}
"""commands, and single lines"""
ENDLESS = "--follow"
QUESTION = "localspec memory forget --workspace ."
"""needs an answer that no user gives here"""


def commands(of: App, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command, groups included."""
    yield path
    for name in of:
        if name not in ("--help", "-h", "--version"):
            yield from commands(of[name], (*path, name))


ALL = [" ".join(path) for path in commands(app)]


def test_all_are_found() -> None:
    assert {"", "run", "daemon logs", "service install", "bench simulate", "--install-completion"} <= set(ALL)
    assert set(ALL) == set(EXAMPLES)


@pytest.mark.parametrize("command", ALL)
def test_help_has_a_summary_and_examples(cli: Cli, command: str) -> None:
    help = cli(*command.split(), "--help").stdout
    usage, summary = help.split("\n\n")[:2]
    assert usage.startswith(f"Usage: localspec {command}".rstrip()) and "[ARGS" not in usage
    assert re.fullmatch(r"[A-Z][^\n]+[^\n.]\.(\n[a-z][^\n]+\.)?", summary), summary
    shown = help.rpartition("Examples:\n")[2].splitlines()
    assert 1 <= len(shown) <= 4 and [line.strip() for line in shown] == list(EXAMPLES[command])
    assert all(f"localspec {command}".rstrip() in line for line in shown)


@pytest.mark.parametrize("command", ALL)
def test_help_fits_a_terminal(command: str) -> None:
    shown = io.StringIO()
    app.help_print(command.split(), console=Console(width=80, file=shown))
    lines = shown.getvalue().splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) < 80
    assert [f"  {line}" for line in EXAMPLES[command]] == lines[-len(EXAMPLES[command]) :]


def test_the_exit_codes_are_all_told(cli: Cli) -> None:
    help = " ".join(cli("--help").stdout.split())
    (told,) = re.findall(r"Exit codes: (.*?)\. Examples", help)
    assert {int(number) for number in re.findall(r"\b(\d+) [a-zA-Z]", told)} == set(ExitCode)


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


RUN = [
    line
    for command, lines in EXAMPLES.items()
    if command not in (*NOT_RUN, "chat")
    for line in lines
    if not {line, " ".join(line.split()[1:3])} & {*NOT_RUN, *EXAMPLES["bench"]} and ENDLESS not in line
]


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
    assert done.returncode == (ExitCode.USAGE if line == QUESTION else ExitCode.OK), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("line", EXAMPLES["chat"])
def test_an_example_chats(cli: Cli, project: Path, line: str) -> None:
    assert cli("run", "--temperature", "0", "hi").returncode == 0  # there is one to go on with
    environment = {**cli.environment, "TERM": "xterm-256color"}
    child = pexpect.spawn(
        "bash", ["-c", line], cwd=str(project), env=environment, timeout=DEADLINE_S, dimensions=(30, 100)
    )
    child.expect("sk something")
    child.sendcontrol("q")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == ExitCode.OK


def test_what_is_not_run_has_a_reason() -> None:
    assert set(NOT_RUN) <= {*EXAMPLES, *(line for lines in EXAMPLES.values() for line in lines)}
    assert len(RUN) > 20
