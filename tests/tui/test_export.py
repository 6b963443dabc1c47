"""Text that leaves the chat: its code, which is copied, and all of it in a Markdown file."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from localspec.errors import StorageError
from localspec.tui.commands import code_blocks
from localspec.tui.conversation import ChatAnswer, ChatQuestion, Said
from localspec.tui.export import file_name, markdown, write


def test_markdown_has_each_text_under_a_heading_to_the_letter() -> None:
    answer = "It joins:\n\n```python\nos.path.join('a', 'b')\n```\n"
    said: list[Said] = [ChatQuestion("What?\n\tReally"), ChatAnswer(answer, "cancelled")]
    heading, date, rest = markdown("Of [joins]\n", "stdlib-6m", "Be short.", said).split("\n\n", 2)
    assert heading.startswith("# Of [joins]") and date.endswith(" · stdlib-6m")
    assert (
        rest
        == f"## System\n\nBe short.\n\n## Question\n\n{said[0].text}\n\n## Answer (cancelled)\n\n{answer}\n"
    )
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


@pytest.mark.parametrize(
    ("place", "why"),
    [("none/it.md", "No such file"), ("x" * 300, "too long")],
)
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
        ("- a\n  - b\n\n    ```\n    deep\n    ```\n\n```\nflat\n```", ["deep", "flat"]),
        ("````md\n```\nx\n```\n````", ["```\nx\n```"]),
        ("It goes on:\n```py\nx =", ["x ="]),
        ("```\n```", [""]),
    ],
)
def test_code_is_found_wherever_it_stands(text: str, found: list[str]) -> None:
    assert code_blocks(text) == found
