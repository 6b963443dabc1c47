"""Lines on directories: access, owner and free space."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from localspec.doctor import places
from localspec.doctor.finding import Finding

IS_ROOT = os.name == "posix" and os.geteuid() == 0


def rights(folder: Path, **environ: str) -> list[Finding]:
    return list(places.permissions({"data": folder}, environ))


@pytest.fixture
def private(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    folder = tmp_path / "da ta"
    folder.mkdir(mode=0o700)
    return folder


def mended(found: Finding) -> None:
    """Run the command that a remedy ends with."""
    command = str(found.remedy).split(": ", 1)[-1].removeprefix("Run ")
    subprocess.run(command, shell=True, check=True)


def test_homes_of_one_place_and_of_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    (one,) = places.homes()
    assert one.level == "ok" and one.sentence.endswith(f"data, cache, state, runtime in {tmp_path}.")
    monkeypatch.delenv("LOCALSPEC_HOME")
    for name in ("DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    (tmp_path / "run").mkdir(mode=0o700)
    (several,) = places.homes()
    assert f"data in {tmp_path}/DATA/localspec, cache in" in several.sentence


def test_what_is_private_is_well(private: Path) -> None:
    (private / "token").touch(0o600)
    (private / "lock").touch(0o644)  # empty
    (private / "link").symlink_to("/")
    assert [found.level for found in rights(private)] == ["ok"]
    assert [found.level for found in rights(private / "not there")] == ["ok"]


def test_what_others_can_read_is_told_and_mended(private: Path) -> None:
    (private / "inside").mkdir()
    (private / "inside").chmod(0o755)
    (private / "token").write_text("secret")
    (private / "token").chmod(0o604)
    (found,) = rights(private)
    assert found.level == "warning" and "da ta/inside" in found.sentence and "token" in found.sentence
    mended(found)
    assert [found.level for found in rights(private)] == ["ok"]


def test_a_socket_of_others_is_told(private: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(private / "s"))
        (private / "s").chmod(0o666)
        (found,) = rights(private)
        assert found.level == "warning" and "da ta/s." in found.sentence


@pytest.mark.skipif(not IS_ROOT, reason="nothing can be given to another user")
def test_what_is_another_users_is_told(private: Path) -> None:
    (private / "token").write_text("secret")
    os.chown(private / "token", 65534, 65534)
    (found,) = rights(private)
    assert found.level == "warning" and "Another user owns" in found.sentence and "chown" in str(found.remedy)


def test_a_home_that_others_can_write_to_is_told_and_mended(private: Path) -> None:
    private.parent.chmod(0o777)
    (found,) = rights(private)
    assert found.level == "warning" and f"replace files in {private.parent}" in found.sentence
    mended(found)
    assert [found.level for found in rights(private)] == ["ok"]
    private.parent.chmod(0o1777)  # as /tmp
    assert [found.level for found in rights(private)] == ["ok"]


def test_the_directory_of_a_login(private: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (gone,) = rights(private, XDG_RUNTIME_DIR=str(run))
    assert gone.level == "warning" and "No such file" in gone.sentence and "unset" in str(gone.remedy)
    run.mkdir()
    run.chmod(0o755)
    (wrong,) = rights(private, XDG_RUNTIME_DIR=str(run))
    assert "is not private" in wrong.sentence
    # Nothing of ours goes there.
    assert [found.level for found in rights(private, XDG_RUNTIME_DIR=str(run), LOCALSPEC_HOME="/h")] == ["ok"]
    run.chmod(0o700)
    assert [found.level for found in rights(private, XDG_RUNTIME_DIR=str(run))] == ["ok"]


def test_each_disk_is_told_once(tmp_path: Path) -> None:
    (found,) = places.disk({"data": tmp_path / "not" / "there", "cache": tmp_path})
    assert "free for data, cache (" in found.sentence
    (long,) = places.disk({"data": tmp_path / ("x" * 300)})
    assert f"free for data ({tmp_path})" in long.sentence


@pytest.mark.parametrize(
    ("free", "level", "told"),
    [
        (5 * 10**9, "ok", "5.0 GB are free for it."),
        (100 * 10**6, "warning", "100.0 MB are free for it."),
        (0, "problem", "0.0 kB are free for it."),
    ],
)
def test_little_room_is_a_warning_and_none_a_problem(free: int, level: str, told: str) -> None:
    found = places._room(free, "it")
    assert (found.level, found.sentence) == (level, told) and (found.remedy is None) == (level == "ok")
