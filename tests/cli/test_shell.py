"""Completion in real shells."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pexpect
import pytest

from tests.cli.harness import CONFIG, Cli
from tests.models.ggufs import small
from tests.waiting import DEADLINE_S

PROGRAM = """#!/bin/sh
# Says how it was called, but for what completion asks.
[ "$1" = __complete ] && exec {python} -m localspec "$@"
printf '<%s>' "$@"
echo
"""
CASES = {
    "models lis\t": "<models><list>",
    "run --proposer prom\t": "<run><--proposer><prompt-lookup>",
    "run -m stdlib-6\t": "<run><-m><stdlib-6m>",
    "run -m q\t7\t": "<run><-m><qwen:7b>",
    "run -m qwen:1\t --raw": "<run><-m><qwen:1b><--raw>",
    "models unload pl\t": "<models><unload><plain>",
    "models load q\t7\t": "<models><load><qwen:7b>",
    "models show pl\t": "<models><show><plain>",
    "config set engine.th\t": "<config><set><engine.threads>",
    "config set backend ll\t": "<config><set><backend><llama_cpp>",
    "config set remember f\t": "<config><set><remember><false>",
    "config set draft non\t": "<config><set><draft><none>",
    "run --draft non\t": "<run><--draft><none>",
    "service ins\t": "<service><install>",
}
"""typed text after the command's name, and the words that the command gets"""


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"there is no {shell}")


@pytest.fixture(scope="module")
def on_path(cli: Cli) -> Cli:
    """A command that is on the PATH, and models whose names have colons."""
    program = cli.home / "bin" / "localspec"
    program.parent.mkdir()
    program.write_text(PROGRAM.format(python=cli.command[0]))
    program.chmod(0o755)
    models = cli.home / "models"
    models.mkdir()
    for name in ("qwen:7b", "qwen:1b", "plain"):
        (models / f"{name}.gguf").write_bytes(small())
    (cli.home / "config" / "config.toml").write_text(f'model_dirs = ["{models}"]\n{CONFIG}')
    cli.environment |= {
        "PATH": f"{program.parent}:{cli.environment['PATH']}",
        **{"HOME": str(cli.home), "TERM": "dumb", "INPUTRC": "/dev/null", "HISTFILE": "/dev/null"},
    }
    return cli


def script(cli: Cli, shell: str, name: str) -> Path:
    path = cli.home / name
    done = cli("--install-completion", "--shell", shell, "--output", str(path))
    assert done.returncode == 0 and str(path) in done.stdout and done.stderr
    return path


class Shell:
    """An interactive shell, which is set up by a few commands."""

    def __init__(self, cli: Cli, command: str, *setup: str) -> None:
        name, *arguments = command.split()
        self.shell = pexpect.spawn(
            name, arguments, env=cli.environment, timeout=2 * DEADLINE_S, encoding="utf-8", echo=False
        )
        for line in setup:
            self.shell.sendline(f"{line}; echo d''one")
            self.shell.expect(r"done\r\n")

    def calls(self, typed: str) -> str:
        """Return the words that the command gets when this is typed after its name."""
        self.shell.send(f"localspec {typed}\r")
        self.shell.expect(r"(<[^\r\n]*>)\r\n")
        return str(self.shell.match.group(1))


@pytest.mark.slow
@needs("bash")
def test_bash(on_path: Cli) -> None:
    quiet = "bind 'set enable-bracketed-paste off'; bind 'set bell-style none'"
    shell = Shell(on_path, "bash --norc --noprofile -i", quiet, f". {script(on_path, 'bash', 'bash.sh')}")
    assert {typed: shell.calls(typed) for typed in CASES} == CASES
    odd = on_path.home / "a folder" / "odd; $(echo 1) 'x"
    odd.parent.mkdir()
    odd.touch()
    called = shell.calls(f"complete --prefix-file {on_path.home}/a\\ fo\tod\t")
    assert called == f"<complete><--prefix-file><{odd}>"


def test_bash_is_given_no_name_of_a_file_as_it_stands(cli: Cli) -> None:
    text = script(cli, "bash", "bash.sh").read_text()
    assert "complete -o default -F" in text and "compgen" not in text


@pytest.mark.slow
@needs("zsh")
def test_zsh(on_path: Cli) -> None:
    folder = script(on_path, "zsh", "_localspec").parent
    shell = Shell(on_path, "zsh -f -i", f"fpath=({folder} $fpath); autoload -Uz compinit; compinit -u")
    assert {typed: shell.calls(typed) for typed in CASES} == CASES


@pytest.mark.slow
@needs("fish")
def test_fish(on_path: Cli) -> None:
    path = script(on_path, "fish", "localspec.fish")
    asked = {typed: called for typed, called in CASES.items() if typed.index("\t") == len(typed) - 1}
    assert len(asked) > 4
    for typed, called in asked.items():
        word = called.rpartition("<")[2].rstrip(">")
        line = f"localspec {typed[:-1]}"
        done = subprocess.run(
            ("fish", "-N", "-c", f"source {path}; complete -C '{line}'"),
            capture_output=True,
            text=True,
            env=on_path.environment,
        )
        assert word in [found.partition("\t")[0] for found in done.stdout.splitlines()], (line, done)


@pytest.mark.slow
def test_sessions_are_offered_while_a_daemon_runs(cli: Cli) -> None:
    assert candidates(cli, "run", "--session", "") == {}
    cli("run", "--max-tokens", "1", "What is a closure?")
    ((session, title),) = candidates(cli, "run", "--session", "").items()
    assert title == "What is a closure?"
    assert cli("run", "--max-tokens", "1", "--session", session, "And now?").returncode == 0


def candidates(cli: Cli, *words: str) -> dict[str, str]:
    done = cli.process("__complete", *words)
    assert done.returncode == 0 and not done.stderr
    lines = done.stdout.partition("\x1fbegin\n")[2].splitlines()
    return {value: help for value, _, help in (line.partition("\t") for line in lines)}


def test_the_place_where_a_shell_looks(cli: Cli) -> None:
    cli.environment["HOME"] = str(cli.home)
    done = cli("--install-completion", "--shell", "bash")
    assert done.returncode == 0 and "bash-completion" in done.stderr
    written = cli.home / ".local" / "share" / "bash-completion" / "completions" / "localspec"
    assert "complete -F" in written.read_text()
