"""What is told of editors."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec._version import __version__
from localspec.doctor.editors import editors
from localspec.doctor.finding import Finding

NO_PLUGINS = f"localspec {__version__} has no plugins for editors yet"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one directory of the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def add(folder: Path, name: str, says: str = "") -> None:
    (folder / name).write_text(f"#!/bin/sh\n{says}\n")
    (folder / name).chmod(0o755)


def told(home: Path) -> str:
    found = editors(home)
    assert found == Finding("editors", "ok", found.sentence)
    return found.sentence


def test_without_any(programs: Path, tmp_path: Path) -> None:
    assert told(tmp_path) == f"Neither VS Code nor Neovim is on the PATH; {NO_PLUGINS}."


def test_those_that_are_here(programs: Path, tmp_path: Path) -> None:
    add(programs, "code")
    add(programs, "codium")
    assert told(tmp_path) == f"VS Code (code, codium) is here; {NO_PLUGINS}."
    add(programs, "nvim", "echo NVIM v0.10.2-dev+1; echo Build type: Release")
    assert told(tmp_path) == f"VS Code (code, codium) and Neovim 0.10.2 are here; {NO_PLUGINS}."


@pytest.mark.parametrize(
    ("says", "what"),
    [
        ("echo NVIM v0.6.1", "Neovim 0.6.1 (older than 0.7) is here"),
        ("exit 1", "Neovim (it does not tell its version) is here"),
        ("exec sleep 60", "Neovim (it does not tell its version) is here"),
    ],
)
def test_a_neovim_that_is_old_broken_or_silent(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, what: str
) -> None:
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setattr("localspec.doctor.editors.ANSWER_S", 0.3)
    add(programs, "nvim", says)
    assert what in told(tmp_path)


def test_an_extension_of_that_name_is_none_of_ours(programs: Path, tmp_path: Path) -> None:
    strange = tmp_path / ".vscode" / "extensions" / "ada.localspec-1.0"
    strange.mkdir(parents=True)
    assert told(tmp_path).endswith(f"{NO_PLUGINS}, and {strange} is none of its own.")
