"""``localspec memory`` as people call it: real processes, a home of their own, the bundled vocabulary."""

from __future__ import annotations

import errno
import inspect
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from localspec.cli.flags import ModelFlags
from localspec.cli.memory import _private_file
from localspec.errors import DiskFull, StorageError
from localspec.memory.files import name_of
from localspec.memory.upkeep import stats
from tests.cli.harness import Cli
from tests.waiting import DEADLINE_S, until_sync


@pytest.fixture
def cli() -> Iterator[Cli]:
    home = Path(tempfile.mkdtemp(prefix="ls")).resolve()
    yield Cli(home)
    shutil.rmtree(home)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path.resolve() / "repo"
    (root / ".git").mkdir(parents=True)
    (root / "wrap.py").write_text(inspect.getsource(textwrap))
    (root / "image.bin").write_bytes(b"\0" * 100)
    (root / ".gitignore").write_text("*.log\n")
    (root / "x.log").write_text("text\n" * 100)
    return root


def tables(cli: Cli) -> list[dict[str, object]]:
    found: list[dict[str, object]] = cli.json("memory", "stats")["tables"]
    return found


def test_an_empty_memory_says_so(cli: Cli) -> None:
    assert cli("memory", "stats").stdout == "Nothing is remembered yet.\n"
    assert tables(cli) == []


def test_priming_learns_what_git_tracks_into_the_repositorys_table(cli: Cli, repo: Path) -> None:
    primed = cli.json("memory", "prime", str(repo))
    assert (primed["files"], primed["skipped"]) == (2, 1) and primed["tokens"] > 2000
    (table,) = tables(cli)
    assert table["workspace"] == str(repo) and table["entries"] and table["quarantined"] == []
    assert isinstance(table["sources"], dict)
    assert f"file:{repo}/wrap.py" in table["sources"] and "x.log" not in json.dumps(table)
    text = cli("memory", "stats").stdout
    assert str(repo) in text and "n-grams" in text and "wrap.py" in text
    private = [path for path in (cli.home / "data").rglob("*") if path.stat().st_mode & 0o077]
    assert private == []


def test_a_file_outside_of_git_goes_to_the_user_wide_table(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one two three four five six seven\n" * 5)
    cli.json("memory", "prime", str(tmp_path / "a.txt"))
    assert [table["workspace"] for table in tables(cli)] == [None]


def test_forgetting_asks_for_yes_where_there_is_no_terminal(cli: Cli, repo: Path) -> None:
    cli("memory", "prime", str(repo))
    refused = cli("memory", "forget")
    assert refused.returncode == 2 and "--yes" in refused.stderr and len(tables(cli)) == 1
    done = cli("memory", "forget", "--yes")
    assert done.returncode == 0 and "Forgot everything: 1 tables." in done.stdout
    assert tables(cli) == []


@pytest.mark.parametrize(("answer", "left"), [("y", 0), ("n", 1), ("", 1)])
def test_forgetting_asks_on_a_terminal(cli: Cli, repo: Path, answer: str, left: int) -> None:
    cli("memory", "prime", str(repo))
    command, *arguments = (*cli.command, "memory", "forget")
    terminal = pexpect.spawn(command, arguments, env=cli.environment, timeout=DEADLINE_S)
    terminal.expect("Forget everything")
    terminal.sendline(answer)
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert len(tables(cli)) == left and terminal.exitstatus == (1 if left else 0)


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
    forgotten = cli.json("memory", "forget", "--workspace", str(repo / "deep"), "--yes")
    assert forgotten == {"forgotten": 1, "unit": "tables"}
    assert [table["workspace"] for table in tables(cli)] == [None]


def test_what_is_exported_can_be_imported(cli: Cli, repo: Path, tmp_path: Path) -> None:
    cli("memory", "prime", str(repo))
    file = tmp_path / "memory.jsonl"
    exported = cli.json("memory", "export", str(file))
    assert exported["ngrams"] == len(file.read_text().splitlines()) - 1 > 1000
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    (before,) = tables(cli)
    cli("memory", "forget", "--yes")
    imported = cli.json("memory", "import", str(file))
    (after,) = tables(cli)
    # What the table has no room for is not said to be there.
    assert imported["read"] == exported["ngrams"] and imported["ngrams"] == after["entries"]
    assert after["workspace"] == before["workspace"] and after["tokens"] == 0
    text = cli("memory", "stats").stdout
    assert f"  {after['entries']} of " in text and "no tokens learned here" in text
    # A file of two n-grams may lose both: which ones share a full bucket differs from table to table.
    sources: dict[str, set[str]] = {k: set(t["sources"]) for k, t in (("a", after), ("b", before))}  # type: ignore[call-overload]
    assert f"file:{repo / 'wrap.py'}" in sources["a"] <= sources["b"]
    assert int(str(after["entries"])) > 0.9 * exported["ngrams"]


def test_another_vocabulary_and_a_foreign_file_are_refused(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('{"type":"table","format":"localspec-memory-1","vocab_fp":"beef","workspace":null}\n')
    refused = cli("memory", "import", str(file), "--json")
    assert refused.returncode == 1 and json.loads(refused.stdout)["error"]["code"] == "tokenizer_mismatch"
    file.write_text("not an export\n")
    refused = cli("memory", "import", str(file), "--json")
    assert refused.returncode == 2 and json.loads(refused.stdout)["error"]["code"] == "invalid_options"


def test_an_import_tells_how_much_found_room(cli: Cli, repo: Path, tmp_path: Path) -> None:
    cli("memory", "prime", str(repo))
    exported = cli.json("memory", "export", str(tmp_path / "out"))["ngrams"]
    head, first, *_ = (tmp_path / "out").read_text().splitlines(keepends=True)
    done = cli("memory", "import", str(tmp_path / "out"))
    (table,) = tables(cli)
    told = re.match(r"Kept (?:all )?(\d+) (?:of the (\d+) )?n-grams", done.stdout)
    assert told is not None and int(told[1]) <= int(str(table["entries"]))
    assert int(told[2] or told[1]) == exported
    (tmp_path / "one").write_text(head + first)
    assert cli("memory", "import", str(tmp_path / "one")).stdout.startswith("Kept all 1 n-grams of ")


def test_where_nothing_was_learned_there_is_nothing_to_forget(cli: Cli, repo: Path, tmp_path: Path) -> None:
    cli("memory", "prime", str(repo))
    done = cli("memory", "forget", "--workspace", str(tmp_path / "other"), "--yes")
    assert done.returncode == 0 and "Forgot" not in done.stdout
    assert done.stdout == f"There is nothing to forget: nothing was learned in {tmp_path / 'other'}.\n"
    done = cli("memory", "forget", "--source", "chat:none", "--yes")
    assert done.returncode == 0 and "nothing to forget" in done.stdout and len(tables(cli)) == 1


@pytest.mark.parametrize(
    "arguments", [("prime",), ("prime", "/nothing/there"), ("prime", ".", "-m", "no-such")]
)
def test_mistakes_are_sentences(cli: Cli, arguments: tuple[str, ...]) -> None:
    done = cli("memory", *arguments)
    assert (
        done.returncode in (1, 2) and done.stderr.startswith("localspec: ") and "Traceback" not in done.stderr
    )


def test_ctrl_c_keeps_what_was_learned(cli: Cli, tmp_path: Path) -> None:
    source = inspect.getsource(inspect)
    for number in range(200):
        (tmp_path / f"{number:03}.py").write_text(source.replace("frame", f"frame{number}"))
    process = subprocess.Popen(
        (*cli.command, "memory", "prime", str(tmp_path)),
        env=cli.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    memory = cli.home / "data" / "memory"
    until_sync(lambda: any(table.tokens for table in stats(memory, print)), "something was learned")
    os.kill(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130 and not output and b"Traceback" not in errors
    (table,) = tables(cli)
    assert int(str(table["tokens"])) > 0 and table["quarantined"] == []


def test_a_repository_whose_path_is_no_unicode(cli: Cli, repo: Path, tmp_path: Path) -> None:
    odd = Path(os.fsdecode(bytes(tmp_path) + b"/\xff"))
    repo.rename(odd)
    cli.json("memory", "prime", str(odd))
    (table,) = tables(cli)
    assert str(table["workspace"]).endswith("\\udcff")
    assert cli.json("memory", "export", str(tmp_path / "out"))["ngrams"] > 1000
    assert cli.json("memory", "import", str(tmp_path / "out"))["ngrams"] > 1000 and len(tables(cli)) == 1
    assert cli.json("memory", "forget", "--workspace", str(odd), "--yes")["forgotten"] == 1


def test_no_workspace_is_not_the_one_at_hand(cli: Cli, repo: Path) -> None:
    cli("memory", "prime", str(repo))
    refused = cli("memory", "forget", "--workspace", "", "--yes", "--json")
    assert refused.returncode == 2 and json.loads(refused.stdout)["error"]["code"] == "invalid_options"
    assert len(tables(cli)) == 1


def test_an_export_is_private_and_whole_or_not_there(tmp_path: Path) -> None:
    stale = tmp_path / ".out.part"
    stale.write_text("")
    stale.chmod(0o644)
    with _private_file(tmp_path / "out") as file:
        file.write(b"x")
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o600
    with pytest.raises(KeyboardInterrupt), _private_file(tmp_path / "out") as file:
        raise KeyboardInterrupt
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.part", "out"]
    assert (tmp_path / "out").read_bytes() == b"x"
    with pytest.raises(StorageError) as caught, _private_file(tmp_path / "out"):
        raise PermissionError(errno.EACCES, "Permission denied")
    assert caught.value.code != "disk_full"
    with pytest.raises(DiskFull), _private_file(tmp_path / "out"):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_an_import_needs_a_file_that_can_be_read_twice(cli: Cli, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    refused = cli("memory", "import", str(tmp_path / "pipe"))
    assert refused.returncode == 2 and "no regular file" in refused.stderr


def test_a_workspace_that_is_no_unicode_can_be_sent(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = Path(os.fsdecode(bytes(tmp_path.resolve()) + b"/\xff"))
    repo.rename(odd)
    monkeypatch.chdir(odd)
    found = ModelFlags().options().workspace
    assert found == f"{tmp_path.resolve()}/\\udcff"
    assert name_of(found) == name_of(str(odd))
    assert ModelFlags(opt=(f"workspace={odd}",)).options().workspace == found
