"""``localspec purge``: a list and a question, then nothing is left; of other programs and users all is."""

from __future__ import annotations

from pathlib import Path

import msgspec
import psutil
import pytest

from localspec.hub.records import HubFile, Pulled
from tests.cli.harness import Cli, ended
from tests.daemon.harness import gone


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path.resolve() / "home")


def test_nothing_is_left_of_what_was_kept_and_all_else_stays(cli: Cli, tmp_path: Path) -> None:
    assert cli("run", "-m", "stdlib-1m", "--max-tokens", "1", "hello").returncode == 0
    daemon = psutil.Process(cli.status()["pid"])
    cli("daemon", "token")
    blobs, others = tmp_path / "models--o--m" / "blobs", tmp_path / "others"
    blobs.mkdir(parents=True)
    (blobs / "a1").write_bytes(b"ours")
    (blobs / "b2").write_bytes(b"of another program")
    pulled = Pulled("m", "o/m", "c", "gguf", (HubFile("m.gguf", 4, "a1"),), str(tmp_path))
    (cli.home / "data" / "pulled.json").write_bytes(msgspec.json.encode([pulled]))
    others.mkdir()
    (others / "notes.txt").touch()
    for link in ("cache/chats/link", "state/chat-theme"):
        (cli.home / link).symlink_to(others)
    done = cli("purge")
    assert done.returncode == 2 and "Add --yes" in done.stderr and daemon.is_running()
    listed = {line.split()[0]: line.split()[-1] for line in done.stdout.splitlines()[1:]}
    assert set(listed) >= {"sessions", "memory", "tokens", "models", "caches", "logs", "settings"}
    assert all(Path(listed[part]).exists() for part in ("sessions", "caches", "logs"))
    assert f"process {daemon.pid}, which will be stopped" in done.stdout
    terminal = cli.terminal("purge", dimensions=(60, 200))
    terminal.expect(r"Remove all of this \(.*\)\? It cannot be undone\. \[y/N\], then Enter")
    terminal.sendline("n")
    assert ended(terminal) == 1 and (cli.home / "data" / "history.sqlite").exists()
    assert cli("purge", "sessions", "--yes").returncode == 0 and gone(daemon)
    assert not list(cli.home.glob("data/history*")) and (cli.home / "state" / "chat-theme").is_symlink()
    assert cli("purge", "--keep-models", "--yes").returncode == 0
    assert [path.name for path in cli.home.rglob("*")] == ["data", "pulled.json"]
    assert cli("purge", "--yes").returncode == 0 and list(cli.home.iterdir()) == []
    assert [path.name for path in blobs.iterdir()] == ["b2"] and (others / "notes.txt").exists()
    assert "nothing to remove" in cli("purge").stderr


def test_a_directory_that_is_a_link_is_refused_and_other_files_stay(cli: Cli, tmp_path: Path) -> None:
    for folder in ("state", "elsewhere"):
        (cli.home / folder).mkdir()
        (cli.home / folder / "mine.txt").touch()
    (cli.home / "elsewhere" / "http-token").touch()
    (cli.home / "data").symlink_to(cli.home / "elsewhere")
    done = cli("purge", "--yes")
    assert done.returncode == 1 and f"{cli.home / 'data'} is a symbolic link" in done.stderr
    assert (cli.home / "config" / "config.toml").exists() and (cli.home / "elsewhere" / "http-token").exists()
    (cli.home / "data").unlink()
    assert cli("purge", "--yes").returncode == 0
    assert {path.name for path in cli.home.iterdir()} == {"elsewhere", "state"}
    cli.environment["HOME"] = str(cli.home)
    shared = cli("purge", "--yes")
    assert shared.returncode == 1 and f"LOCALSPEC_HOME is {cli.home}" in shared.stderr
