"""Detecting that the daemon's settings differ from those of its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.config import load_config
from localspec.daemon.settings import Settings

SECTIONS = '[models."a"]\nk = 1\n[models."b"]\nk = 2\n'


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    (tmp_path / "config").mkdir()
    return tmp_path / "config" / "config.toml"


def test_the_same_said_otherwise_is_no_change(file: Path) -> None:
    settings = Settings(load_config())
    assert settings.state() == "current"
    file.write_text('# as it was\nauto_pull = "off"\n[engine]\nn_ctx = 0\n')
    assert settings.state() == "current"
    file.unlink()
    assert settings.state() == "current"


def test_what_changes_and_changes_back_and_breaks(file: Path) -> None:
    file.write_text(SECTIONS)
    settings = Settings(load_config())
    one, other = SECTIONS[: len(SECTIONS) // 2], SECTIONS[len(SECTIONS) // 2 :]
    for text, state in (
        (f"[engine]\nn_ctx = 64\n{SECTIONS}", "changed"),
        ("[engine", "broken"),
        (SECTIONS, "current"),
        (other + one, "changed"),  # of two sections of one model the later goes first
    ):
        file.write_text(text)
        assert settings.state() == settings.state() == state
    file.unlink()
    assert settings.state() == "changed"


def test_a_change_before_the_first_look_is_seen(file: Path) -> None:
    config = load_config()
    file.write_text(SECTIONS)
    assert Settings(config).state() == "changed"


def test_it_is_the_file_that_was_read(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(load_config())
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "other"))
    file.write_text(SECTIONS)
    assert settings.state() == "changed"
