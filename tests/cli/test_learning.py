"""Learning from ``run`` and ``complete``: the table, the source's name, and the cases without learning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.harness import Cli
from tests.memory.hostile_repository import repository

SHORT = ("--temperature", "0", "--max-tokens", "12")
WORDS = "Explain how textwrap.dedent treats the leading whitespace of lines"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    return repository(tmp_path)


@pytest.fixture(autouse=True)
def empty(cli: Cli) -> None:
    assert cli("memory", "forget", "--all", "--yes").returncode == 0


def learned(cli: Cli) -> dict[str | None, set[str]]:
    """The sources of every workspace."""
    tables: list[dict[str, Any]] = cli.json("memory", "stats")["tables"]
    return {table["workspace"]: set(table["sources"]) for table in tables}


def local(cli: Cli, *arguments: str, cwd: Path) -> str:
    done = cli("run", *SHORT, "--no-daemon", *arguments, WORDS, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [(), ("--proposer", "memory")])
def test_a_run_teaches_the_repository_it_is_made_in(cli: Cli, repo: Path, arguments: tuple[str, ...]) -> None:
    local(cli, *arguments, cwd=repo / "src")
    assert learned(cli) == {str(repo): {"run"}}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["--private", "--opt=remember=false"])
@pytest.mark.parametrize("where", [(), ("--no-daemon",)])
def test_what_is_not_to_be_remembered_is_not(cli: Cli, repo: Path, how: str, where: tuple[str, ...]) -> None:
    assert cli("run", *SHORT, *where, how, WORDS, cwd=repo).returncode == 0
    # A worker learns all it was taught before it ends.
    cli("daemon", "stop")
    assert learned(cli) == {}


@pytest.mark.slow
def test_a_damaged_table_is_said_on_stderr(cli: Cli, repo: Path) -> None:
    local(cli, cwd=repo)
    (file,) = (cli.home / "data" / "memory").rglob("w-*.ngm")
    file.write_bytes(b"damaged" + file.read_bytes()[7:])
    (line,) = [line for line in local(cli, cwd=repo).splitlines() if "n-gram memory" in line]
    assert line.startswith(f"localspec: {file} is not used as n-gram memory") and WORDS not in line


@pytest.mark.slow
def test_texts_from_stdin_are_learned(cli: Cli, repo: Path) -> None:
    other = "class Queue:\n    def push(self, item):\n        self.items.append(item)\n"
    texts = [{"path": str(repo / "a.py"), "text": WORDS}, {"path": "untitled", "text": other}]
    primed = cli.json("memory", "prime", "--stdin", input=json.dumps(texts))
    assert (primed["files"], primed["skipped"]) == (2, 0)
    assert learned(cli)[str(repo)] == {f"file:{repo / 'a.py'}"}
    cli.json("memory", "prime", "--stdin", "--workspace", "/elsewhere", input=json.dumps(texts))
    assert learned(cli)["/elsewhere"] == {f"file:{repo / 'a.py'}", "file:untitled"}
    done = cli("memory", "prime", "--stdin", input="no JSON")
    assert done.returncode == 2 and "stdin is not a JSON array of objects with a path" in done.stderr
