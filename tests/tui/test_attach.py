"""Files that go with a message."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from threading import Event

import pytest

from localspec.errors import InvalidOptions
from localspec.tui import attach
from localspec.tui.attach import Files, attach_files, gather_files, mention_of, mentions, rank_files
from localspec.tui.conversation import ChatQuestion
from tests.waiting import until


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/one.py").write_text("x = 1\n")
    (tmp_path / "two words.md").write_text("Some ```` ticks")
    (tmp_path / "empty").touch()
    return tmp_path


def test_what_is_mentioned() -> None:
    text = 'See @a.py, (@b/c) and @"d e" but not me@home.org, @ or _@x'
    assert list(mentions(text)) == ["a.py,", "b/c)", "d e"]
    assert mention_of("a b") == '@"a b"' and mention_of("a/b") == "@a/b"


@pytest.mark.parametrize(
    "name", ["a b", "At 9.41\u202fAM.txt", "no\u00a0break", 'say "hi"', 'a"', "what?)", "o'clock", "x@y.py"]
)
def test_every_name_that_is_suggested_can_be_attached(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("content\n")
    assert gather_files(tmp_path) == [name]
    language = Path(name).suffix[1:]
    for text in (f"See {mention_of(name)} now", f"({mention_of(name)}).", mention_of(name)):
        assert attach_files(text, tmp_path) == f"{text}\n\n{name}:\n```{language}\ncontent\n```"


def test_files_stand_below_the_text(here: Path) -> None:
    text = 'What do @src/one.py, @"two words.md" and @empty do? I mean @src/one.py.'
    assert attach_files(text, here) == (
        f"{text}\n\nsrc/one.py:\n```py\nx = 1\n```\n\ntwo words.md:\n`````md\nSome ```` ticks\n`````"
        "\n\nempty:\n```\n```"
    )


def test_a_path_may_be_absolute_or_at_home(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(here))
    for name in (f"{here}/src/one.py", "~/src/one.py", "./src/one.py", "src/../src/one.py"):
        assert attach_files(f"@{name}", here).endswith(f"\n\n{name}:\n```py\nx = 1\n```")


@pytest.mark.parametrize(
    "text",
    [
        "me@src/one.py, @unknown, @src/two.py and @/dev/zero",
        "@app.route('/x')\n@dataclass",
        'no mention, and @"no such"',
        "@src\0/one.py",
        "@src and @src/ are directories",
    ],
)
def test_what_is_no_file_stays_as_it_is(here: Path, text: str) -> None:
    assert attach_files(text, here) == text


@pytest.mark.parametrize(
    ("mention", "shown"),
    [
        ("@bytes", "bytes is not UTF-8 text"),
        ("@zero", "zero is not UTF-8 text"),
        ("@large", "large is larger than 256.0 kB"),
    ],
)
def test_what_cannot_be_attached_is_an_error(here: Path, mention: str, shown: str) -> None:
    (here / "bytes").write_bytes(b"\xff\xfe")
    (here / "zero").write_bytes(b"a\0b")
    (here / "large").write_bytes(b"x" * (attach.MAX_BYTES + 1))
    with pytest.raises(InvalidOptions) as error:
        attach_files(f"See {mention}", here)
    assert shown in error.value.message and error.value.remedy


@pytest.mark.parametrize(
    "text",
    [
        'What do @src/one.py, @"two words.md" and @empty do?',
        "no mention",
        "quoted:\n\nsrc/one.py:\n```py\nx\n```",
        "@src/one.py\n\nother:\n```\nx\n```",
        "ends with a fence @empty\n\n```",
    ],
)
def test_what_was_written_is_known_again(here: Path, text: str) -> None:
    assert ChatQuestion(attach_files(text, here)).written == text


def test_files_are_found_by_a_part_of_their_path() -> None:
    files = ["README.md", "src/prompt.py", "src/tui/prompt.py", "tests/test_prompt.py", "p/r/o.md"]
    assert rank_files("", files) == files
    assert rank_files("PROMPT", files)[0].endswith("/prompt.py") and len(rank_files("PROMPT", files)) == 3
    assert rank_files("tui/p", files) == ["src/tui/prompt.py"] and rank_files("zz", files) == []
    assert len(rank_files("p", [f"p{number}" for number in range(2_000)])) == attach.SHOWN


def test_files_whose_names_command_the_terminal_are_not_suggested(here: Path) -> None:
    for name in ("a\x1b[2Jb", "one\ntwo", "txt\u202egnp", os.fsdecode(b"\xff")):
        (here / name).touch()
    assert gather_files(here) == ["empty", "two words.md", "src/one.py"]


def test_near_files_are_known_first_and_not_too_many(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "src/deep").mkdir()
    (here / "src/deep/three.py").touch()
    (here / ".env").write_text("SECRET=1")
    assert gather_files(here) == ["empty", "two words.md", "src/one.py", "src/deep/three.py"]
    monkeypatch.setattr(attach, "MOST_FILES", 3)
    assert gather_files(here) == ["empty", "two words.md", "src/one.py"]
    monkeypatch.setattr(attach, "GATHER_S", -1.0)
    assert gather_files(here) == []


async def test_files_are_looked_for_once_at_a_time(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    going_on, searches = Event(), list[Path]()

    def search(directory: Path) -> list[str]:
        searches.append(directory)
        going_on.wait()
        return gather_files(directory)

    monkeypatch.setattr(attach, "gather_files", search)
    files = Files(here)
    asked = [asyncio.create_task(files.like(typed)) for typed in ("", "o", "on", "one")]
    await until(lambda: bool(searches), "the search has begun")
    for each in asked[:-1]:
        each.cancel()
    going_on.set()
    assert await asked[-1] == ["src/one.py"] and await files.like("two") == ["two words.md"]
    assert searches == [here]
