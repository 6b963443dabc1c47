"""Lines on editors."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec._version import __version__
from localspec.doctor.editors import editors
from localspec.doctor.finding import Finding


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


def told(home: Path) -> list[str]:
    found = list(editors(home))
    assert found == [Finding("editors", "ok", each.sentence) for each in found]
    return [each.sentence for each in found]


def test_without_any(programs: Path, tmp_path: Path) -> None:
    assert told(tmp_path) == [
        "Neither VS Code nor Neovim is on the PATH; other editors can use `localspec lsp`."
    ]


def test_those_that_are_here(programs: Path, tmp_path: Path) -> None:
    add(programs, "code")
    add(programs, "codium")
    (code,) = told(tmp_path)
    assert code.startswith("VS Code (code, codium) is installed, localspec's extension is not")
    assert "plugins/vscode/README.md" in code
    add(programs, "nvim", "echo NVIM v0.10.2-dev+1; echo Build type: Release")
    assert told(tmp_path) == [
        code,
        "Neovim 0.10.2 is installed; `:checkhealth localspec` in it checks the plugin.",
    ]


@pytest.mark.parametrize(
    ("says", "what"),
    [
        ("echo NVIM v0.6.1", "Neovim 0.6.1 is installed, but localspec's plugin needs 0.7 or newer."),
        ("exit 1", "Neovim is installed, but `nvim --version` prints no version."),
        ("exec sleep 60", "Neovim is installed, but `nvim --version` prints no version."),
    ],
)
def test_a_neovim_that_is_old_broken_or_silent(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, what: str
) -> None:
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setattr("localspec.doctor.editors.ANSWER_S", 0.3)
    add(programs, "nvim", says)
    assert told(tmp_path) == [what]


def test_the_extension_of_this_version_another_one_and_somebody_else_s(
    programs: Path, tmp_path: Path
) -> None:
    add(programs, "code")
    extensions = tmp_path / ".vscode" / "extensions"
    (extensions / "ada.localspec-1.0").mkdir(parents=True)
    assert "localspec's extension is not" in told(tmp_path)[0]
    (extensions / "localspec.localspec-0.0.1").mkdir()
    (old,) = editors(tmp_path)
    assert old.level == "warning" and "0.0.1" in old.sentence and "plugins/vscode" in str(old.remedy)
    (extensions / f"localspec.localspec-{__version__}").mkdir()
    assert told(tmp_path) == ["VS Code (code) has localspec's extension."]
