"""Copying to the system's clipboard; its tools are scripts here, which keep their input."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.selection import SELECT_ALL

from localspec.tui import export
from tests.tui.showing import TEXT, conversation, showing

COPIED = "naïve 👋\n\tcode\n"


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH; there is neither a display nor SSH."""
    for name in ("SSH_CONNECTION", "WAYLAND_DISPLAY", "DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def write(folder: Path, name: str, script: str = '/bin/cat > "$0.read"; echo "$@" > "$0.said"') -> Path:
    """A tool, which writes what it reads into the file that is returned."""
    tool = folder / name
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    return folder / f"{name}.read"


@pytest.mark.parametrize(
    ("name", "variable", "arguments"),
    [
        ("wl-copy", "WAYLAND_DISPLAY", "--type text/plain"),
        ("xclip", "DISPLAY", "-selection clipboard"),
        ("xsel", "DISPLAY", "--clipboard --input"),
        ("pbcopy", "", ""),
    ],
)
def test_a_tool_reads_it(
    tools: Path, monkeypatch: pytest.MonkeyPatch, name: str, variable: str, arguments: str
) -> None:
    read = write(tools, name)
    if variable:
        export.copy(COPIED)
        assert not read.exists()
        monkeypatch.setenv(variable, ":0")
    export.copy(COPIED)
    assert read.read_text("utf-8") == COPIED
    assert (tools / f"{name}.said").read_text().strip() == arguments


def test_windows_reads_its_own_encoding(tools: Path) -> None:
    read = write(tools, "clip.exe")
    export.copy(COPIED)
    assert read.read_text("utf-16-le") == COPIED


def test_over_ssh_it_would_be_another_one(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = write(tools, "pbcopy")
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.1 50000 192.0.2.2 22")
    export.copy("text")
    assert not read.exists()


@pytest.mark.parametrize("script", ["exit 1", "exec /bin/sleep 60", "\nexec /no/such/program"])
def test_a_tool_that_fails_is_no_matter(tools: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    ends = "sleep" not in script
    monkeypatch.setattr(export, "COPYING_S", 30 if ends else 0.2)
    write(tools, "pbcopy", f'/bin/echo > "$0.begun"; {script}')
    export.copy("text" * 100_000)  # more than a pipe holds
    assert (tools / "pbcopy.begun").exists() or not ends
    (tools / "pbcopy").write_bytes(b"\x00 no program")
    export.copy("text")


@pytest.mark.slow
async def test_messages_and_what_is_selected_are_copied(
    still: Path, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = write(tools, "wl-copy")
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    async with showing(conversation()) as player:
        player.screen.action_run("copy")
        await player.until(lambda: read.exists() and read.read_text() == TEXT, "it is copied")
        assert player.app.clipboard == TEXT
        player.screen.action_run("code")
        await player.until(lambda: read.read_text().startswith("import textwrap\n"), "it is copied")
        player.screen.selections = {player.transcript: SELECT_ALL}
        await player.press("alt+up", "ctrl+c")
        await player.until(lambda: read.read_text() == player.app.clipboard, "it is copied")
        assert "What does `textwrap.dedent` do?" in read.read_text()
