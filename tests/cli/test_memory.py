"""``localspec memory`` as people call it: the real command, a home of their own, the bundled vocabulary."""

from __future__ import annotations

import inspect
import json
import os
import re
import signal
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.cli.flags import ModelFlags
from localspec.memory.memory import stats
from localspec.memory.table_files import name_of
from localspec.models.catalogue import BUNDLED_TARGET
from tests.cli.harness import Cli, ended
from tests.doctor.imports import REFUSE, at_import
from tests.folders import short_folder
from tests.memory.hostile_repository import repository
from tests.mlx_pair import mlx_model
from tests.waiting import DEADLINE_S, until_sync


@pytest.fixture
def cli() -> Iterator[Cli]:
    with short_folder() as home:
        yield Cli(home)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path.resolve() / "repo"
    repository(root)
    (root / "wrap.py").write_text(inspect.getsource(textwrap))
    (root / "image.bin").write_bytes(b"\0" * 100)
    (root / ".gitignore").write_text("*.log\n")
    (root / "x.log").write_text("text\n" * 100)
    return root


def tables(cli: Cli) -> list[dict[str, object]]:
    found: list[dict[str, object]] = cli.json("memory", "stats")["tables"]
    return found


def test_priming_learns_what_git_tracks_into_the_repositorys_table(cli: Cli, repo: Path) -> None:
    primed = cli.json("memory", "prime", str(repo))
    assert (primed["files"], primed["skipped"]) == (2, 1) and primed["tokens"] > 2000
    (table,) = tables(cli)
    assert table["workspace"] == str(repo) and table["entries"]
    assert isinstance(table["sources"], dict)
    assert f"file:{repo}/wrap.py" in table["sources"] and "x.log" not in json.dumps(table)
    text = cli("memory", "stats").stdout
    assert str(repo) in text and re.search(r"  \d+ n-grams from file:\S+wrap\.py", text)
    private = [path for path in (cli.home / "data").rglob("*") if path.stat().st_mode & 0o077]
    assert private == []


def test_what_is_left_out_as_a_secret_is_not_counted_as_learnt(cli: Cli, tmp_path: Path) -> None:
    plain, secret = tmp_path / "plain.py", tmp_path / "secret.py"
    plain.write_text(TEXT := "def add(a, b):\n    return a + b\n" * 3)
    secret.write_text(f"{TEXT}API_KEY = 'ghp_q8WkfLz2Rt9VbNx4Yd7JmHc3Sp6Ag1Eu5Ki0'\n")
    one = cli.json("memory", "prime", str(plain))
    assert one["secret_tokens"] == 0
    two = cli.json("memory", "prime", str(secret))
    assert two["secret_tokens"] > 5 and two["tokens"] < one["tokens"] + 10
    seen = cli("memory", "prime", str(plain), str(secret)).stdout
    left_out = f"{two['secret_tokens']} tokens that look like secrets left out"
    assert seen == f"Learnt {one['tokens'] + two['tokens']} tokens of 2 files; {left_out}.\n"


@pytest.mark.slow
def test_a_directory_is_learnt_with_where_mlx_is_not_installed(cli: Cli, repo: Path, tmp_path: Path) -> None:
    hook = tmp_path / "hook"
    hook.mkdir()
    cli.environment["PYTHONPATH"] = str(hook)
    directory = str(mlx_model(BUNDLED_TARGET))
    at_import(hook, "mlx", REFUSE)
    primed = cli.process("memory", "prime", str(repo), "-m", directory)
    assert primed.returncode == 0 and "of 2 files" in primed.stdout
    at_import(hook, "tokenizers", REFUSE)
    refused = cli.process("memory", "prime", str(repo), "-m", directory)
    assert refused.returncode == 69 and "make dev" in refused.stderr
    assert "of 2 files" in cli.process("memory", "prime", str(repo)).stdout


def test_a_broken_directory_is_refused(cli: Cli, repo: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    refused = cli("memory", "prime", str(repo / "wrap.py"), "-m", str(tmp_path), "--json")
    assert refused.returncode == 1
    assert json.loads(refused.stdout)["error"]["code"] == "model_invalid"
    assert tables(cli) == []


def test_a_file_outside_of_git_goes_to_the_user_wide_table(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one two three four five six seven\n" * 5)
    cli.json("memory", "prime", str(tmp_path / "a.txt"))
    assert [table["workspace"] for table in tables(cli)] == [None]


def test_forgetting_asks_for_yes_where_there_is_no_terminal(cli: Cli, repo: Path) -> None:
    cli("memory", "prime", str(repo))
    refused = cli("memory", "forget", "--all")
    assert refused.returncode == 2 and "--yes" in refused.stderr and len(tables(cli)) == 1
    done = cli("memory", "forget", "--all", "--yes")
    assert (done.returncode, done.stdout) == (0, "Forgot the memory of all workspaces: 1 table.\n")
    assert cli("memory", "stats").stdout == "Nothing is remembered yet.\n" and tables(cli) == []


def test_forgetting_needs_a_selection(cli: Cli, repo: Path) -> None:
    cli("memory", "prime", str(repo))
    for given in (
        (),
        ("--all", "--workspace", ".", "--yes"),
        ("--all", "--source", "run", "--yes"),
        ("--workspace", "", "--yes"),
    ):
        refused = cli("memory", "forget", *given, "--json")
        assert refused.returncode == 2 and json.loads(refused.stdout)["error"]["code"] == "invalid_options"
        assert len(tables(cli)) == 1
    seen = cli("memory", "forget", "--yes").stderr
    assert all(each in seen for each in ("--workspace .", "--source NAME", "--all"))


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "left"), [("y", 0), ("n", 1), ("", 1)])
def test_forgetting_asks_on_a_terminal(cli: Cli, repo: Path, answer: str, left: int) -> None:
    cli("memory", "prime", str(repo))
    terminal = cli.terminal("memory", "forget", "--all")
    terminal.expect_exact("Forget the memory of all workspaces (1 table)? It cannot be undone. [y/N]")
    terminal.sendline(answer)
    assert ended(terminal) == (1 if left else 0) and len(tables(cli)) == left


@pytest.mark.slow
def test_a_workspace_and_a_source_can_be_forgotten(cli: Cli, repo: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text(inspect.getsource(textwrap.indent))
    cli("memory", "prime", str(repo), str(other))
    assert len(tables(cli)) == 2
    source = f"file:{repo}/wrap.py"
    forgotten = cli.json("memory", "forget", "--source", source, "--yes")
    assert forgotten["unit"] == "n-grams" and forgotten["forgotten"] > 1000
    assert all(source not in json.dumps(table) for table in tables(cli))
    (repo / "deep").mkdir()
    cli("memory", "prime", str(other), "--workspace", str(repo / "deep"))
    forgotten = cli.json("memory", "forget", "--workspace", str(repo / "deep"), "--yes")
    assert forgotten == {"forgotten": 1, "unit": "tables"}
    assert [table["workspace"] for table in tables(cli)] == [None]


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_learned(cli: Cli, tmp_path: Path) -> None:
    source = inspect.getsource(inspect)
    repository(tmp_path)
    for number in range(200):
        (tmp_path / f"{number:03}.py").write_text(source.replace("frame", f"frame{number}"))
    process = subprocess.Popen(
        (*cli.command, "memory", "prime", str(tmp_path)),
        env=cli.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    memory = cli.home / "data" / "memory"
    until_sync(lambda: any(table.entries for table in stats(memory, print)), "something was learned")
    os.kill(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130 and not output and b"Traceback" not in errors
    (table,) = tables(cli)
    assert int(str(table["entries"])) > 0


def test_workspaces_of_no_unicode_are_sent(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = Path(os.fsdecode(bytes(tmp_path.resolve()) + b"/\xff"))
    repo.rename(odd)
    monkeypatch.chdir(odd)
    found = ModelFlags().options().workspace
    assert found == f"{tmp_path.resolve()}/\\udcff"
    assert name_of(found) == name_of(str(odd))
    assert ModelFlags(opt=(f"workspace={odd}",)).options().workspace == found
