"""Text that leaves the chat: in a Markdown file, or the clipboard, whose tools are scripts here."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from textual.selection import SELECT_ALL

from localspec.errors import StorageError
from localspec.tui import export
from localspec.tui.commands import code_blocks
from localspec.tui.conversation import ChatAnswer, ChatQuestion, Said
from localspec.tui.export import file_name, markdown, write
from tests.tui.showing import TEXT, conversation, showing


def test_markdown_has_each_text_under_a_heading_to_the_letter() -> None:
    answer = "It joins:\n\n```python\nos.path.join('a', 'b')\n```\n"
    said: list[Said] = [ChatQuestion("What?\n\tReally"), ChatAnswer(answer, "cancelled")]
    heading, date, rest = markdown("Of [joins]\n", "stdlib-6m", "Be short.", said).split("\n\n", 2)
    assert heading.startswith("# Of [joins]") and date.endswith(" · stdlib-6m")
    question = f"## Question\n\n{said[0].text}\n\n"
    assert rest == f"## System\n\nBe short.\n\n{question}## Answer (cancelled)\n\n{answer}\n"
    without = markdown("", None, None, [ChatAnswer("x", "failed"), ChatAnswer("", "cancelled")])
    assert without.startswith("# Chat\n\n20") and " · " not in without
    assert without.endswith("## Answer (failed)\n\nx\n")


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("What does os.path.join do?", "What-does-os.path.join-do"),
        ("../../etc/passwd", "etc-passwd"),
        ("Größe — 你好", "Größe-你好"),
        ("??", "chat"),
        ("x" * 200, "x" * 60),
    ],
)
def test_a_file_is_named_after_the_title(title: str, name: str) -> None:
    assert file_name(title) == name


def test_a_place_may_be_a_directory_and_no_file_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert [write("x", "", "A b?").name for _ in range(3)] == ["A-b.md", "A-b-2.md", "A-b-3.md"]
    (tmp_path / "chats").mkdir()
    assert write("x", "~/chats/", "A b?") == tmp_path / "chats" / "A-b.md"
    assert write("x", "chats", "A b?") == tmp_path / "chats" / "A-b-2.md"
    mine = tmp_path / "mine.md"
    mine.write_text("mine")
    assert write("x", "mine.md", "") == tmp_path / "mine-2.md" and mine.read_text() == "mine"


@pytest.mark.parametrize(("place", "why"), [("none/it.md", "No such file"), ("x" * 300, "too long")])
def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path, place: str, why: str) -> None:
    with pytest.raises(StorageError, match=why) as caught:
        write("x", os.path.join(tmp_path, place), "")
    assert "/export" in caught.value.remedy
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_to_its_end_is_removed(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, before[1]))
    try:
        with pytest.raises(StorageError, match="too large"):
            write("x" * 17, str(tmp_path / "it.md"), "")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("No `code` here.\n\n- one\n- two", []),
        ("```py\nx = 1\n\ny = 2\n```\nand\n~~~\nz\n~~~", ["x = 1\n\ny = 2", "z"]),
        ("1. do\n\n   ```py\n   x = 1\n     y\n   ```\n", ["x = 1\n  y"]),
        ("> ```\n> x\n> ```\n", ["x"]),
        ("Indented:\n\n    x = 1\n      y\n\nno more", ["x = 1\n  y"]),
        ("````md\n```\nx\n```\n````", ["```\nx\n```"]),
        ("It goes on:\n```py\nx =", ["x ="]),
        ("```\n```", [""]),
    ],
)
def test_code_is_found_wherever_it_stands(text: str, found: list[str]) -> None:
    assert code_blocks(text) == found


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


def write_tool(folder: Path, name: str, script: str = '/bin/cat > "$0.read"; echo "$@" > "$0.said"') -> Path:
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
    read = write_tool(tools, name)
    if variable:
        export.copy(COPIED)
        assert not read.exists()
        monkeypatch.setenv(variable, ":0")
    export.copy(COPIED)
    assert read.read_text("utf-8") == COPIED
    assert (tools / f"{name}.said").read_text().strip() == arguments


def test_windows_reads_its_own_encoding(tools: Path) -> None:
    read = write_tool(tools, "clip.exe")
    export.copy(COPIED)
    assert read.read_text("utf-16-le") == COPIED


def test_over_ssh_it_would_be_another_one(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = write_tool(tools, "pbcopy")
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.1 50000 192.0.2.2 22")
    export.copy("text")
    assert not read.exists()


@pytest.mark.parametrize("script", ["exit 1", "exec /bin/sleep 60", "\nexec /no/such/program"])
def test_a_tool_that_fails_is_no_matter(tools: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    ends = "sleep" not in script
    monkeypatch.setattr(export, "COPYING_S", 30 if ends else 0.2)
    write_tool(tools, "pbcopy", f'/bin/echo > "$0.begun"; {script}')
    export.copy("text" * 100_000)  # more than a pipe holds
    assert (tools / "pbcopy.begun").exists() or not ends
    (tools / "pbcopy").write_bytes(b"\x00 no program")
    export.copy("text")


@pytest.mark.slow
async def test_messages_and_what_is_selected_are_copied(
    still: Path, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = write_tool(tools, "wl-copy")
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    async with showing(conversation()) as player:
        await player.do("/copy")
        await player.until(lambda: read.exists() and read.read_text() == TEXT, "it is copied")
        assert player.app.clipboard == TEXT and player.toasts == ["Copied."]
        await player.do("/code")
        await player.until(lambda: read.read_text().startswith("import textwrap\n"), "it is copied")
        player.screen.selections = {player.transcript: SELECT_ALL}
        await player.press("alt+up", "ctrl+c")
        await player.until(lambda: read.read_text() == player.app.clipboard, "it is copied")
        assert "What does `textwrap.dedent` do?" in read.read_text()
