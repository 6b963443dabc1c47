"""Chats whose caches are on disk go on after a restart; a damaged file costs time alone."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

import pytest

from localspec.engine.engine import Engine
from localspec.engine.learning import Learning
from localspec.engine.load import load
from localspec.engine.prefixes import Saved
from localspec.home import chat_cache_name, chat_caches_dir
from localspec.protocol.options import Options
from localspec.protocol.requests import Request, Result, TextPrompt
from tests.toy import ToyBackend, markov
from tests.toys import rested, run_all

TALE = "a chat that was interrupted by the evening, and is gone on with in the morning. "


def engine_at(directory: Path, *, limit: int = 1 << 20, model: str = "toy", sequences: int = 4) -> Engine:
    """An engine whose chats are kept there."""
    directory.mkdir(exist_ok=True)
    backend = ToyBackend(markov(), n_ctx=2048, max_sequences=sequences)
    chats = Saved(directory, model, limit)
    return Engine(backend, learning=Learning(backend, chats=chats))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "model"


def say(engine: Engine, text: str, source: str = "chat:one", *, remember: bool = True) -> Result:
    options = Options(max_tokens=3, temperature=0.0, remember=remember)
    sequence = engine.submit(Request(prompt=TextPrompt(text), options=options, source=source))
    run_all(engine, [sequence])
    assert isinstance(result := sequence.events[-1], Result)
    return result


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*"))


def test_a_chat_goes_on_after_a_restart_where_it_was(place: Path, tmp_path: Path) -> None:
    with engine_at(place) as engine:
        first = say(engine, TALE * 2)
    with engine_at(place) as again:
        second = say(again, TALE * 2 + first.text + " And?")
        alone = say(engine_at(tmp_path / "none"), TALE * 2 + first.text + " And?")
    assert second.cached_tokens >= len(TALE * 2) and alone.cached_tokens == 0
    assert second.text == alone.text


def test_it_is_written_at_idle_time_when_it_has_grown_and_at_the_end(place: Path) -> None:
    engine, sizes, text = engine_at(place), list[int](), TALE
    for more in (TALE, TALE, "!"):
        text += more
        text += say(engine, text).text
        rested(engine)
        (path,) = files(place)
        sizes.append(path.stat().st_size)
    assert path.name == chat_cache_name("chat:one") and path.stat().st_mode & 0o077 == 0
    assert sizes[0] < sizes[1] == sizes[2]
    # As if killed: nothing more is written.
    assert say(engine_at(place), text).cached_tokens >= 2 * len(TALE)
    engine.close()
    assert path.stat().st_size > sizes[2]


def test_the_newest_branch_of_a_chat_is_the_one_on_disk_at_the_end(place: Path) -> None:
    with engine_at(place) as engine:
        for text in (TALE * 3, TALE * 2 + "another branch", TALE * 5):
            say(engine, text)
            rested(engine)
    assert say(engine_at(place), TALE * 5 + "!").cached_tokens >= 5 * len(TALE)


@pytest.mark.parametrize(
    ("source", "remember", "limit"),
    [("chat:one", False, 9000), ("run", True, 9000), ("file:/a.py", True, 9000), ("chat:one", True, 100)],
)
def test_what_is_private_no_chat_or_too_large_is_not_written(
    tmp_path: Path, source: str, *, remember: bool, limit: int
) -> None:
    with engine_at(tmp_path / "model", limit=limit) as engine:
        say(engine, TALE * 2, source, remember=remember)
    assert not files(tmp_path / "model")


def test_a_forgotten_chat_leaves_no_file(place: Path) -> None:
    with engine_at(place) as engine:
        say(engine, TALE * 2)
        rested(engine)
        engine.forget("chat:one")
    assert not files(place)


def test_a_chat_that_is_forgotten_while_it_is_written_leaves_no_file(place: Path) -> None:
    engine = engine_at(place)
    say(engine, TALE * 2)
    while not files(place):
        assert engine.rest()
    assert [path.suffix for path in files(place)] == [".part"]
    engine.forget("chat:one")
    engine.close()
    assert not files(place)


def test_chats_of_another_model_are_not_taken(place: Path) -> None:
    with engine_at(place) as engine:
        say(engine, TALE * 2)
    assert say(engine_at(place, model="another"), TALE * 2 + "!").cached_tokens == 0


def test_the_directory_stays_under_its_limit_and_the_last_used_stay(place: Path) -> None:
    with engine_at(place, limit=9_000) as engine:
        for n in range(6):
            say(engine, f"{n}{TALE * 2}", f"chat:{n}")
            rested(engine)
            for age, path in enumerate(sorted(files(place), key=lambda each: each.stat().st_mtime)):
                os.utime(path, (age, age))
    assert 0 < sum(path.stat().st_size for path in files(place)) <= 9_000
    assert chat_cache_name("chat:5") in [path.name for path in files(place)]


@pytest.mark.parametrize("how", ["cut", "flipped", "empty", "noise", "longer", "gone"])
def test_a_damaged_file_is_thrown_away_and_the_chat_is_read_again(place: Path, how: str) -> None:
    with engine_at(place) as engine:
        say(engine, TALE * 2)
    (path,) = files(place)
    whole = path.read_bytes()
    changed = {"cut": whole[:-40], "empty": b"", "noise": os.urandom(400), "longer": whole + b"x"}
    changed["flipped"] = whole[:-40] + bytes([whole[-40] ^ 1]) + whole[-39:]
    path.write_bytes(changed.get(how, whole))
    again = engine_at(place)
    if how == "gone":
        path.unlink()
    result = say(again, TALE * 2 + "!")
    assert result.cached_tokens == 0 and result.text
    again.close()
    assert len(files(place)) == 1


HEADER = b'{"format":5,"model":"toy","tokens":%s,"canonical":0,"source":"chat:one","crc32":%d}\n%s'
STATE = b"no state of any backend"
TOKENS = json.dumps(list((TALE * 2).encode())).encode()


@pytest.mark.parametrize(
    "content",
    [
        b'{"format":5,"model":"\xff\xfe"}\n',
        b'{"format":5,"x":' + b"[" * 200_000 + b"\n",
        HEADER % (TOKENS, 0, STATE),
        HEADER % (TOKENS, zlib.crc32(STATE), STATE),
    ],
    ids=["no UTF-8", "deep", "another sum", "no state"],
)
def test_a_file_that_makes_no_sense_is_thrown_away(place: Path, content: bytes) -> None:
    place.mkdir()
    path = place / chat_cache_name("chat:one")
    path.write_bytes(content)
    again = engine_at(place, sequences=1)
    # Its cache loses the only sequence to the file that is then of no use.
    say(again, TALE[:20], "chat:two")
    result = say(again, TALE * 2 + "!")
    assert result.cached_tokens <= 20 and result.text
    assert not path.exists()


def test_a_file_is_read_that_spares_more_than_the_cache_set_aside(tmp_path: Path) -> None:
    with engine_at(tmp_path / "model", sequences=1) as engine:
        say(engine, TALE + "x" * 500, "chat:longer")
        say(engine, TALE * 4)
        rested(engine)
        say(engine, "Something else, which takes the only sequence", "run")
        assert say(engine, TALE * 4 + " And?").cached_tokens >= len(TALE * 4)


def test_a_directory_that_cannot_be_written_to_costs_the_cache_alone(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with engine_at(place) as engine:
        place.rmdir()
        assert say(engine, TALE * 2).text
    assert "cannot be written" in caplog.text


@pytest.mark.parametrize("limit", [0, 5000])
def test_a_limit_that_was_lowered_holds_from_the_next_start_on(place: Path, limit: int) -> None:
    with engine_at(place) as engine:
        for source in "chat:one", "chat:two", "chat:three":
            say(engine, source + TALE * 2, source)
    assert len(files(place)) == 3
    Saved(place, "toy", limit)
    left = files(place)
    assert len(left) < 3 and sum(path.stat().st_size for path in left) <= limit


def test_where_none_are_to_be_kept_none_are_left() -> None:
    settings: dict[str, Any] = {"draft": "none", "backend": "llama_cpp", "n_ctx": 512, "threads": 1}
    with load("stdlib-1m", memory=True, **settings) as engine:
        say(engine, TALE * 6)
    assert list(chat_caches_dir().glob("*/*"))
    with load("stdlib-1m", memory=True, chat_cache_mb=0, **settings) as engine:
        say(engine, TALE * 6)
    assert not list(chat_caches_dir().glob("*/*"))
