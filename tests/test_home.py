"""Paths of files, and their permissions."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from localspec import home
from localspec.config import config_path
from localspec.errors import LocalspecError

PLACES: dict[str, Callable[[], Path]] = {
    "config": home.config_dir,
    "data": home.data_dir,
    "state": home.state_dir,
    "runtime": home.runtime_dir,
}
PRIVATE = {name: place for name, place in PLACES.items() if name != "config"}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    return (tmp_path / "home").resolve()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_every_place_is_under_the_home(root: Path) -> None:
    assert {name: place() for name, place in PLACES.items()} == {name: root / name for name in PLACES}
    assert home.discovery_path() == root / "runtime" / "daemon.json"
    assert home.http_token_path() == root / "data" / "http-token"
    assert config_path() == root / "config" / "config.toml"


def test_a_relative_home_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCALSPEC_HOME", "here")
    assert home.config_dir() == tmp_path.resolve() / "here" / "config"


@pytest.mark.parametrize("value", [None, ""])
def test_without_a_home_the_platforms_places_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CONFIG", "DATA", "STATE"):
        monkeypatch.delenv(f"XDG_{name}_HOME", raising=False)
    if value is None:
        monkeypatch.delenv("LOCALSPEC_HOME", raising=False)
    else:
        monkeypatch.setenv("LOCALSPEC_HOME", value)
    places = [place() for place in (home.config_dir, home.data_dir, home.state_dir)]
    assert len(set(places)) == len(places)
    for path in places:
        assert path.is_relative_to(tmp_path) and "localspec" in path.parts


def test_a_home_too_deep_for_a_socket_has_it_elsewhere(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert home.socket_path() == root / "runtime" / "daemon.sock"
    monkeypatch.setenv("LOCALSPEC_HOME", str(root / ("d" * 100)))
    path = home.socket_path()
    monkeypatch.setenv("TMPDIR", str(root))
    assert home.socket_path() == path and len(os.fsencode(path)) <= home.SOCKET_PATH_BYTES
    assert mode(path.parent) == 0o700
    path.parent.rmdir()


def test_asking_where_the_configuration_is_creates_nothing(root: Path) -> None:
    home.config_dir()
    assert not root.exists()


@pytest.mark.parametrize("name", PRIVATE)
def test_private_places_are_their_owners_and_closed_if_open(root: Path, name: str) -> None:
    assert mode(PLACES[name]()) == 0o700
    (root / name).chmod(0o777)
    assert mode(PLACES[name]()) == 0o700


def test_a_place_that_cannot_be_made_is_refused_with_a_remedy(root: Path) -> None:
    root.write_text("a file where the home should be")
    with pytest.raises(LocalspecError, match="data cannot be used") as caught:
        home.data_dir()
    assert "LOCALSPEC_HOME" in caught.value.remedy


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
@pytest.mark.parametrize("is_link", [False, True])
def test_a_place_or_a_link_of_another_user_is_refused(root: Path, is_link: bool) -> None:
    place = home.runtime_dir()
    if is_link:
        place.rename(root / "own")
        place.symlink_to(root / "own")
        assert home.runtime_dir() == place
    os.chown(place, 12345, 12345, follow_symlinks=False)
    with pytest.raises(LocalspecError, match="belongs to another user"):
        home.runtime_dir()


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_a_private_file_is_its_owners_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        home.write_private(tmp_path / "token", "secret")
        home.private_dir(tmp_path / "inner")
    finally:
        os.umask(before)
    assert (mode(tmp_path / "token"), mode(tmp_path / "inner")) == (0o600, 0o700)


def test_writing_replaces_the_file_at_once_and_leaves_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch(mode=0o666)
    home.write_private(file, "old and longer é\n")
    with file.open() as reader:
        home.write_private(file, "new")
        assert reader.read() == "old and longer é\n"
    with pytest.raises(UnicodeEncodeError):
        home.write_private(file, "\ud800")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"file": "new"}
    assert mode(file) == 0o600


def test_a_link_in_place_of_the_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("another")
    (tmp_path / "file").symlink_to(tmp_path / "elsewhere")
    home.write_private(tmp_path / "file", "ours")
    assert (tmp_path / "elsewhere").read_text() == "another"
    assert not (tmp_path / "file").is_symlink()


def test_a_directory_that_was_deleted_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    assert home.here() == place
    place.rmdir()
    monkeypatch.setenv("LOCALSPEC_HOME", "relative")
    for place_of in (home.here, home.config_dir):
        with pytest.raises(LocalspecError, match="was deleted"):
            place_of()
