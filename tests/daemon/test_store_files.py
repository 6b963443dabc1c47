"""The chats' file where it is older, damaged or on a full disk."""

from __future__ import annotations

import errno
import itertools
import os
import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from localspec.daemon.chats.history import History
from localspec.daemon.chats.store import MIGRATIONS, Store, Turn
from localspec.errors import DaemonUnavailable, DiskFull, LocalspecError
from localspec.protocol.options import Options
from tests.daemon.test_store import ALL, said, session
from tests.waiting import run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


def version_one(path: Path) -> None:
    """A file as the first version wrote it, with its message 1 deleted and its log not merged in."""
    db = sqlite3.connect(path, isolation_level=None)
    db.executescript(f"PRAGMA journal_mode = WAL; {MIGRATIONS[0]} PRAGMA user_version = 1;")
    db.execute("INSERT INTO sessions VALUES ('s', 'title', 1.5, 2.5, '{\"seed\":3}', 'be brief')")
    rows = [(2, "user", "hello", "complete"), (3, "assistant", "half an ans", "streaming")]
    for id, role, content, status in rows:
        db.execute("INSERT INTO messages VALUES (?, 's', ?, ?, ?, 1.0)", (id, role, content, status))
    db.close()


def check_migrated(path: Path) -> None:
    store = Store(str(path))
    try:
        assert said(store, "s") == [("user", "hello", "complete"), ("assistant", "half an ans", "failed")]
        assert [m.id for m in store.messages("s")] == [2, 3]
        found = store.find("s", False)
        assert found is not None and (found.options, found.system) == (Options(seed=3), "be brief")
        dropped = store.begin_turn("s", Turn(message=3)).answer
        assert store.begin_turn("s", Turn(message=2)).answer > dropped > 3
    finally:
        store.close()
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert tables == {"sessions", "messages", "sqlite_sequence"}
    db.close()


def test_a_file_of_the_first_version_is_migrated(path: Path) -> None:
    version_one(path)
    check_migrated(path)


DYING = """
import os, signal, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA cache_size = 0")  # what is changed goes to the log at once
db.execute("BEGIN")
for statement in sys.argv[2:]:
    db.execute(statement)
os.kill(os.getpid(), signal.SIGKILL)
"""
STEPS = [step for step in MIGRATIONS[1].split(";") if step.strip()]


@pytest.mark.parametrize("done", range(len(STEPS) + 1))
def test_a_migration_that_was_killed_is_done_again(path: Path, done: int) -> None:
    version_one(path)
    steps = [*STEPS, "PRAGMA user_version = 2"][: done + 1]
    killed = subprocess.run([sys.executable, "-c", DYING, str(path), *steps], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    check_migrated(path)


async def opened(path: Path) -> History:
    history = History(path)
    await history.open()
    return history


@pytest.mark.parametrize("damage", ["no database", "a page in the middle", "cut off"])
async def test_a_damaged_file_is_set_aside_with_its_log(path: Path, damage: str) -> None:
    store = Store(str(path))
    store.add(session("s"))
    for n in range(200):
        store.begin_turn("s", Turn(f"message {n} " * 50))
    store.close()
    data = path.read_bytes()
    assert len(data) > 40 * 4096
    if damage == "no database":
        data = b"this is no database" * 1000
    elif damage == "a page in the middle":
        data = data[: 20 * 4096] + b"\xff" * 4096 + data[21 * 4096 :]
    else:
        data = data[: 20 * 4096 + 100]
    path.write_bytes(data)
    log = path.with_name(path.name + "-wal")
    log.write_bytes(b"of the damaged file")
    history = await opened(path)
    assert await history.summaries(ALL) == ()
    await history.new_session(Options(), None, False)
    await history.close()
    (aside,) = [p for p in path.parent.glob("*.damaged-*") if not p.name.endswith(("-wal", "-shm"))]
    assert aside.read_bytes() == data
    again = await opened(path)
    assert len(await again.summaries(ALL)) == 1
    await again.close()


async def test_damage_that_comes_while_it_is_open_is_told_with_what_to_do(path: Path) -> None:
    history = await opened(path)
    chat = await history.new_session(Options(), None, False)
    for n in range(30):
        await history.begin_turn(chat, Turn(f"{n} " * 50_000))
    await history.close()
    history = await opened(path)
    with path.open("r+b") as file:  # all that does not fit into SQLite's cache
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    with pytest.raises(LocalspecError, match="cannot be read or written") as caught:
        await history.messages(chat)
    assert "sets the file aside" in caught.value.remedy
    await history.close()
    again = await opened(path)
    assert await again.summaries(ALL) == ()
    await again.close()
    assert list(path.parent.glob("*.damaged-*"))


def test_a_full_disk_is_told_and_what_was_there_stays(path: Path) -> None:
    store = Store(str(path))
    store.add(session("s"))
    begun = store.begin_turn("s", Turn("before"))
    store.write_answer(begun.answer, "answer", "complete")
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        store.begin_turn("s", Turn("x" * 100_000))
    with pytest.raises(sqlite3.OperationalError, match="full"):
        store.write_answer(begun.answer, "x" * 100_000, "complete")
    before = [("user", "before", "complete"), ("assistant", "answer", "complete")]
    assert said(store, "s") == before
    store._db.execute("PRAGMA max_page_count = 100000")
    store.begin_turn("s", Turn("x" * 100_000))
    assert said(store, "s")[:2] == before
    store.close()


async def test_a_full_disk_has_an_error_of_its_own(path: Path) -> None:
    history = await opened(path)
    chat = await history.new_session(Options(), None, False)
    await fill(history)
    with pytest.raises(DiskFull, match="no space left"):
        await history.begin_turn(chat, Turn("x" * 100_000))
    assert await history.messages(chat) == ()
    await history.close()


async def fill(history: History, pages: int = 0) -> None:
    """From now on SQLite finds room for no page beyond ``pages``, or for none more than there are."""

    def full() -> None:
        (used,) = history._stored._db.execute("PRAGMA page_count").fetchone()
        history._stored._db.execute(f"PRAGMA max_page_count = {pages or used}")

    await history._do(full)


async def test_a_second_process_is_told_that_the_history_is_in_use(path: Path) -> None:
    program = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom localspec.daemon.chats.history import History\n"
        "from localspec.errors import DaemonUnavailable\n"
        "try:\n    asyncio.run(History(Path(sys.argv[1])).open())\n"
        "except DaemonUnavailable as error:\n    sys.exit(error.message)\n"
    )
    history = await opened(path)
    with pytest.raises(DaemonUnavailable, match="another daemon uses"):
        await History(path).open()
    other = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert other.returncode == 1 and "another daemon uses" in other.stderr, other.stderr
    await history.close()
    await (await opened(path)).close()


def test_the_files_are_their_owners(path: Path) -> None:
    umask = os.umask(0)
    try:
        run(_touch(path))
        assert {
            p.name: oct(p.stat().st_mode & 0o777) for p in path.parent.iterdir() if p.suffix != ".lock"
        } == {"history.sqlite": "0o600"}
    finally:
        os.umask(umask)


async def _touch(path: Path) -> None:
    history = await opened(path)
    await history.new_session(Options(), None, False)
    await history.close()


def test_chats_of_an_older_file_keep_their_order(path: Path) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    db.executescript("".join(MIGRATIONS[:2]) + "PRAGMA user_version = 2;")
    for id, updated in (("first", 1.0), ("third", 3.0), ("second", 2.0), ("second too", 2.0)):
        db.execute("INSERT INTO sessions VALUES (?, '', 0.0, ?, '{}', NULL)", (id, updated))
    db.close()
    store = Store(str(path))
    store.add(session("fourth"))
    assert [s.session for s in store.summaries(ALL)] == ["fourth", "third", "second too", "second", "first"]
    store.close()


@pytest.mark.parametrize("number", range(len(MIGRATIONS)))
def test_migrations_are_understood_by_old_versions_of_sqlite(number: int) -> None:
    """Distributions' Python may use a library of 2018: `UPDATE … FROM` came in 3.33, windows in 3.25."""
    script = re.sub(r"\s+", " ", MIGRATIONS[number]).upper()
    while (outer := re.sub(r"\([^()]*\)", "", script)) != script:
        script = outer
    assert not re.search(r"UPDATE [^;]* FROM|RETURNING|DROP COLUMN|RENAME COLUMN|STRICT", script)
    assert " OVER " not in MIGRATIONS[number].upper()


def instructions(chats: int) -> int:
    """Thousands of SQLite's instructions that the migration of so many chats of version 2 takes."""
    db, thousands = sqlite3.connect(":memory:", isolation_level=None), itertools.count()
    db.executescript("".join(MIGRATIONS[:2]))
    rows = ((str(i), float(i % 977)) for i in range(chats))
    db.executemany("INSERT INTO sessions VALUES (?, '', 0.0, ?, '{}', NULL)", rows)
    db.set_progress_handler(lambda: next(thousands) < 0, 1000)
    db.executescript("".join(MIGRATIONS[2:]))
    db.close()
    return next(thousands)


def test_the_work_of_a_migration_grows_with_the_number_of_chats() -> None:
    few, many = instructions(2_000), instructions(8_000)
    assert few > 20 and many < 5 * few


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
async def test_a_disk_without_room_for_the_lock_keeps_chats_in_memory(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """Of files it has none left: tests/slow/test_full_disk.py has a real one, which root alone can mount."""

    def full(*args: object, **kwargs: object) -> int:
        raise OSError(error, os.strerror(error))

    history = History(path)
    with monkeypatch.context() as disk:
        disk.setattr(os, "open", full)
        await history.open()
    assert history.problem is not None and "in memory only" in history.problem
    chat = await history.new_session(Options(), None, False)
    assert await history.session(chat.id) == chat
    await history.close()
