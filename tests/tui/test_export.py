"""A chat as a file: its contents, its name, and the messages if it cannot be written."""

from __future__ import annotations

import json
import os
import resource
import time
from pathlib import Path

import pytest

from localspec.errors import StorageError
from localspec.protocol.options import Options
from localspec.protocol.sessions import SessionContent, StoredMessage
from localspec.tui.conversation import Answer, Question
from localspec.tui.export import Record, Wish, file_name, lines_of

NOON = time.mktime((2026, 5, 17, 12, 30, 0, 0, 0, -1))
ANSWER = "It joins:\n\n```python\nos.path.join('a', 'b')\n```\n"
CONTENT = SessionContent(
    session="0123456789abcdef",
    title="What does os.path.join do?",
    options=Options(temperature=0.0, model="bundled"),
    system="Be short.",
    private=False,
    messages=(
        StoredMessage(1, "user", "What does os.path.join do?\n\tReally \x1b[1m?", "complete", NOON),
        StoredMessage(2, "assistant", ANSWER, "cancelled", NOON + 1),
    ),
)


def test_markdown_has_each_text_under_a_heading_to_the_letter() -> None:
    assert Record.stored(CONTENT, "stdlib-6m").as_markdown() == (
        "# What does os.path.join do?\n\n2026-05-17 12:30 · stdlib-6m\n\n## System\n\nBe short.\n\n"
        f"## Question\n\n{CONTENT.messages[0].content}\n\n## Answer (stopped)\n\n{ANSWER}\n"
    )


def test_json_has_the_whole_session() -> None:
    assert json.loads(Record.stored(CONTENT).as_json()) == {
        "session": "0123456789abcdef",
        "title": "What does os.path.join do?",
        "model": "bundled",
        "system": "Be short.",
        "options": {"temperature": 0.0, "model": "bundled"},
        "messages": [
            {"role": m.role, "content": m.content, "status": m.status, "created": m.created}
            for m in CONTENT.messages
        ],
    }


def test_what_only_the_screen_knows_is_exported_without_dates() -> None:
    lines = lines_of([Question("Why?"), Answer("Because", status="failed")])
    record = Record(session=None, title="", model=None, system=None, options=Options(), messages=lines)
    markdown = record.as_markdown()
    assert markdown.startswith("# Chat\n\n20") and " · " not in markdown
    assert markdown.endswith("## Question\n\nWhy?\n\n## Answer (interrupted)\n\nBecause\n")
    assert [m["created"] for m in json.loads(record.as_json())["messages"]] == [None, None]


@pytest.mark.parametrize(
    ("argument", "wish"),
    [
        ("", Wish("md", "")),
        ("md", Wish("md", "")),
        ("JSON", Wish("json", "")),
        ("json my chat.txt", Wish("json", "my chat.txt")),
        ("md  notes.json", Wish("md", "notes.json")),
        ("a b.JSON", Wish("json", "a b.JSON")),
        ("mdx", Wish("md", "mdx")),
    ],
)
def test_format_and_place_are_read_as_people_type_them(argument: str, wish: Wish) -> None:
    assert Wish.read(argument) == wish


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("What does os.path.join do?", "What-does-os.path.join-do"),
        ("../../etc/passwd", "etc-passwd"),
        ("Größe — 你好", "Größe-你好"),
        ("??", "chat"),
        ("", "chat"),
        ("x" * 200, "x" * 60),
    ],
)
def test_a_file_is_named_after_the_title(title: str, name: str) -> None:
    assert file_name(title) == name


def test_no_file_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    record = Record.stored(CONTENT)
    names = [Wish.read("").write(record).name for _ in range(3)]
    assert names == [f"What-does-os.path.join-do{number}.md" for number in ("", "-2", "-3")]
    assert len({(tmp_path / name).read_text() for name in names}) == 1
    mine = tmp_path / "mine.md"
    mine.write_text("mine")
    assert Wish.read("mine.md").write(record) == tmp_path / "mine-2.md" and mine.read_text() == "mine"


def test_a_place_may_be_a_directory_or_begin_with_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    record = Record.stored(CONTENT)
    assert Wish.read("json ~").write(record) == tmp_path / "What-does-os.path.join-do.json"
    (tmp_path / "chats").mkdir()
    assert Wish.read("~/chats/").write(record) == tmp_path / "chats" / "What-does-os.path.join-do.md"
    assert Wish.read("~/it").write(record) == tmp_path / "it"


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("none/it.md", "No such file"),
        ("a\0b", "a file cannot have such a name"),
        ("x" * 300, "too long"),
    ],
)
def test_what_cannot_be_written_is_told_with_a_remedy(tmp_path: Path, place: str, why: str) -> None:
    with pytest.raises(StorageError, match=why) as caught:
        Wish("md", os.path.join(tmp_path, place)).write(Record.stored(CONTENT))
    assert "/export" in caught.value.remedy and "\0" not in caught.value.message
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_to_its_end_is_removed(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, before[1]))
    try:
        with pytest.raises(StorageError, match="too large"):
            Wish("md", str(tmp_path / "it.md")).write(Record.stored(CONTENT))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []
