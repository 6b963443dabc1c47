"""The chats' file: what it holds after any sequence of operations, crash or damage."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from localspec import errors
from localspec.daemon.chats import ChatHistory, ChatStore, Session, TurnRequest
from localspec.errors import DiskFull, InvalidOptions, SessionNotFound
from localspec.protocol.messages import SessionOpen, SessionQuery, Status
from localspec.protocol.options import Options

Row = tuple[int, str, str, str]
"""id, role, content, status"""
STATUSES: tuple[Status, ...] = ("streaming", "complete", "cancelled", "failed")
ALL = SessionQuery(limit=1000)
TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


def session(id: str, **fields: object) -> Session:
    values = {"title": "", "options": Options(), "system": None, "private": False, **fields}
    return Session(id=id, **values)  # type: ignore[arg-type]


def said(store: ChatStore, id: str) -> list[tuple[str, str, str]]:
    return [(message.role, message.content, message.status) for message in store.messages(id)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[ChatHistory]:
    history = ChatHistory(path)
    await history.open()
    yield history
    await history.close()


@pytest.fixture
def history(path: Path) -> AbstractAsyncContextManager[ChatHistory]:
    return opened(path)


@pytest.fixture
def store(path: Path) -> Iterator[ChatStore]:
    store = ChatStore(str(path))
    yield store
    store.close()


class Chats(RuleBasedStateMachine):
    """The store beside lists of what each session should hold."""

    def __init__(self) -> None:
        super().__init__()
        self.store = ChatStore(":memory:")
        self.model: dict[str, list[Row]] = {}
        self.given: set[int] = set()

    def teardown(self) -> None:
        self.store.close()

    @rule(title=st.sampled_from(["", "a title"]))
    def open(self, title: str) -> None:
        id = f"s{len(self.model)}-{len(self.given)}-{title[:1]}"
        if id not in self.model:
            self.store.add(session(id, title=title))
            self.model[id] = []

    def begun(self, id: str, turn: TurnRequest, kept: list[Row], question: str) -> None:
        """The turn is stored behind ``kept``; a user's message comes first unless it is there already."""
        begun = self.store.begin_turn(id, turn)
        assert [(m.role, m.content) for m in begun.now] == [("user", question)]
        before = [(r, c) for _, r, c, _ in (kept if turn.content is not None else kept[:-1]) if c]
        pairs = (pair for pair in zip(before, before[1:], strict=False) if pair[0][0] == "user" != pair[1][0])
        assert [(m.role, m.content) for m in begun.before] == [each for pair in pairs for each in pair]
        stored = self.store.messages(id)
        new: list[Row] = [(m.id, m.role, m.content, m.status) for m in stored[len(kept) :]]
        assert new[-1] == (begun.answer, "assistant", "", "streaming")
        assert [n[1:] for n in new[:-1]] == (
            [("user", question, "complete")] if turn.content is not None else []
        )
        assert not self.given & {n[0] for n in new}, "an id was given twice"
        self.given |= {n[0] for n in new}
        # One that was cut off has no writer any more.
        kept = [(i, r, c, "failed" if s == "streaming" else s) for i, r, c, s in kept]
        self.model[id] = kept + new

    @precondition(lambda self: self.model)
    @rule(data=st.data(), text=TEXTS)
    def send(self, data: st.DataObject, text: str) -> None:
        id = data.draw(st.sampled_from(sorted(self.model)))
        self.begun(id, TurnRequest(text), self.model[id], text)

    @precondition(lambda self: any(self.model.values()))
    @rule(data=st.data(), text=TEXTS)
    def write(self, data: st.DataObject, text: str) -> None:
        id = data.draw(st.sampled_from(sorted(id for id in self.model if self.model[id])))
        status = data.draw(st.sampled_from(STATUSES))
        row, *_ = self.model[id][-1]
        if self.model[id][-1][1] == "assistant":
            self.store.write_answer(row, text, status)
            self.model[id][-1] = (row, "assistant", text, status)

    @precondition(lambda self: any(self.model.values()))
    @rule(data=st.data(), text=TEXTS)
    def edit(self, data: st.DataObject, text: str) -> None:
        id, place = self.somewhere(data)
        row, role, _, _ = self.model[id][place]
        if role == "user":
            self.begun(id, TurnRequest(text, row), self.model[id][:place], text)
        else:
            with pytest.raises(InvalidOptions, match="cannot be edited"):
                self.store.begin_turn(id, TurnRequest(text, row))

    @precondition(lambda self: any(self.model.values()))
    @rule(data=st.data(), named=st.booleans())
    def regenerate(self, data: st.DataObject, named: bool) -> None:
        id, place = self.somewhere(data)
        if not named:
            place = len(self.model[id]) - 1
        questions = [n for n, (_, role, *_) in enumerate(self.model[id][: place + 1]) if role == "user"]
        turn = TurnRequest(message=self.model[id][place][0] if named else None)
        if not questions:
            with pytest.raises(InvalidOptions, match="no message to answer"):
                self.store.begin_turn(id, turn)
        else:
            kept = self.model[id][: questions[-1] + 1]
            self.begun(id, turn, kept, kept[-1][2])

    @precondition(lambda self: any(self.model.values()))
    @rule(data=st.data(), whole=st.booleans())
    def fork(self, data: st.DataObject, whole: bool) -> None:
        id, place = self.somewhere(data)
        copy = f"{id}+{len(self.given)}"
        if copy in self.model:
            return
        self.store.fork(session(id), session(copy), None if whole else self.model[id][place][0])
        copied = self.store.messages(copy)
        expected = self.model[id] if whole else self.model[id][: place + 1]
        assert [(m.role, m.content, m.status) for m in copied] == [
            (r, c, "cancelled" if s == "streaming" else s) for _, r, c, s in expected
        ]
        self.given |= {m.id for m in copied}
        self.model[copy] = [(m.id, m.role, m.content, m.status) for m in copied]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.model)))
        self.store.delete(id)
        del self.model[id]
        with pytest.raises(SessionNotFound):
            self.store.begin_turn(id, TurnRequest("x"))
        with pytest.raises(SessionNotFound):
            self.store.delete(id)

    @precondition(lambda self: len([id for id in self.model if self.model[id]]) > 1)
    @rule(data=st.data())
    def touch_another(self, data: st.DataObject) -> None:
        id, place = self.somewhere(data)
        other = data.draw(st.sampled_from(sorted(self.model.keys() - {id})))
        row, *_ = self.model[id][place]
        for turn in (TurnRequest("x", row), TurnRequest(message=row)):
            with pytest.raises(errors.MessageNotFound):
                self.store.begin_turn(other, turn)

    def somewhere(self, data: st.DataObject) -> tuple[str, int]:
        id = data.draw(st.sampled_from(sorted(id for id in self.model if self.model[id])))
        return id, data.draw(st.integers(0, len(self.model[id]) - 1))

    @invariant()
    def holds_what_it_should(self) -> None:
        for id, messages in self.model.items():
            assert [(m.id, m.role, m.content, m.status) for m in self.store.messages(id)] == messages
        summaries = {s.session: s.messages for s in self.store.summaries(ALL)}
        assert summaries == {id: len([m for m in ms if m[2]]) for id, ms in self.model.items()}


Chats.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestChats = Chats.TestCase


def test_titles_and_messages_are_searched_in_whatever_case(store: ChatStore) -> None:
    for id, title, text in (
        ("a", "Straße", "x"),
        ("b", "", "100% SICHER_"),
        ("c", "other", "gate 'x' ünder"),
    ):
        store.add(session(id, title=title))
        store.begin_turn(id, TurnRequest(text))
    expected = {"STRASSE": "a", "100% s": "b", "0%_": "", "_": "b", "'x' Ü": "c", "": "abc", "nowhere": ""}
    for query, ids in expected.items():
        assert {s.session for s in store.summaries(SessionQuery(query=query))} == set(ids), query


def test_a_list_comes_in_pages_the_last_used_first(store: ChatStore) -> None:
    for id in "abcde":
        store.add(session(id))
    store.begin_turn("b", TurnRequest("hello"))
    pages = [[s.session for s in store.summaries(SessionQuery(limit=2, offset=n))] for n in (0, 2, 4, 6)]
    assert pages == [["b", "e"], ["d", "c"], ["a"], []]


def test_the_order_of_use_does_not_depend_on_the_clock(store: ChatStore, path: Path) -> None:
    """One chat was used while the clock was a day ahead."""
    store.add(session("ahead"))
    store.begin_turn("ahead", TurnRequest("x"))
    with sqlite3.connect(path) as db:
        db.execute("UPDATE sessions SET updated = updated + 24 * 3600")
    db.close()
    store.add(session("now"))
    assert [s.session for s in store.summaries(ALL)] == ["now", "ahead"]
    store.begin_turn("ahead", TurnRequest("x"))
    assert [s.session for s in store.summaries(ALL)] == ["ahead", "now"]
    store.fork(session("now"), session("copy"), None)
    again = ChatStore(str(path))
    assert [s.session for s in again.summaries(ALL)] == ["copy", "ahead", "now"]
    again.close()


def test_a_title_is_the_first_line_said_until_it_is_given(store: ChatStore) -> None:
    store.add(session("a"))
    first = store.begin_turn("a", TurnRequest("\n  first line \nsecond"))
    store.begin_turn("a", TurnRequest("later"))
    assert [s.title for s in store.summaries(ALL)] == ["first line"]
    store.rename("a", "given")
    store.begin_turn("a", TurnRequest("x", first.answer - 1))
    assert [s.title for s in store.summaries(ALL)] == ["given"]


def test_a_title_goes_with_the_line_that_it_was_taken_from(store: ChatStore, path: Path) -> None:
    store.add(session("a"))
    first = store.begin_turn("a", TurnRequest("marker-4711"))
    store.begin_turn("a", TurnRequest("later"))
    store.begin_turn("a", TurnRequest("another", first.answer - 1))
    assert [s.title for s in store.summaries(ALL)] == ["another"]
    assert anywhere(path.parent, "marker-4711") == []
    store.begin_turn("a", TurnRequest())
    later = store.begin_turn("a", TurnRequest("another"))
    store.begin_turn("a", TurnRequest("later", later.answer - 1))
    assert [s.title for s in store.summaries(ALL)] == ["another"]


def test_of_a_chat_that_was_deleted_meanwhile_there_is_no_copy(store: ChatStore, path: Path) -> None:
    origin = session("a", title="marker-4711")
    store.add(origin)
    store.delete("a")
    with pytest.raises(SessionNotFound):
        store.fork(origin, session("b", title="marker-4711"), None)
    assert store.summaries(ALL) == () and anywhere(path.parent, "marker-4711") == []


def anywhere(folder: Path, text: str) -> list[str]:
    """The files under ``folder`` that hold ``text``, in their bytes or their names."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_fifo()]
    return [path.name for path in files if text.encode() in path.read_bytes() or text in path.name]


@pytest.mark.parametrize("size", [1, 3000])
@pytest.mark.parametrize("how", ["delete", "edit", "regenerate"])
def test_of_what_is_dropped_nothing_stays_in_the_files(
    store: ChatStore, path: Path, how: str, size: int
) -> None:
    """Short texts in a page and long ones over many, written several times over."""
    secret = "marker-4711 " * size
    store.add(session("a"))
    store.add(session("b"))
    store.begin_turn("b", TurnRequest("stays"))
    store.begin_turn("a", TurnRequest("hello"))
    row = store.begin_turn("a", TurnRequest(secret if how != "regenerate" else "hello")).answer
    for part in (1, 2, 3):
        store.write_answer(row, secret * part, "streaming")
    assert anywhere(path.parent, "marker-4711")
    if how == "delete":
        store.delete("a")
    elif how == "edit":
        store.begin_turn("a", TurnRequest("harmless", row - 1))
    else:
        store.begin_turn("a", TurnRequest(message=row))
    assert anywhere(path.parent, "marker-4711") == []
    assert said(store, "b")[0] == ("user", "stays", "complete")


@pytest.mark.parametrize("damage", ["no database", "a page in the middle", "cut off"])
async def test_a_damaged_file_is_set_aside_with_its_log(path: Path, damage: str) -> None:
    store = ChatStore(str(path))
    store.add(session("s"))
    for n in range(200):
        store.begin_turn("s", TurnRequest(f"message {n} " * 50))
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
    async with opened(path) as history:
        assert await history.summaries(ALL) == ()
        await history.new_session(Options(), SessionOpen())
    (aside,) = [p for p in path.parent.glob("*.damaged-*") if not p.name.endswith(("-wal", "-shm"))]
    assert aside.read_bytes() == data
    async with opened(path) as again:
        assert len(await again.summaries(ALL)) == 1


async def test_damage_that_comes_while_it_is_open_is_reported_with_what_to_do(path: Path) -> None:
    async with opened(path) as history:
        chat = await history.new_session(Options(), SessionOpen())
        long = TurnRequest("long " * 50_000)
        for _ in range(30):
            await history.use(chat, lambda store: store.begin_turn(chat.id, long))
    async with opened(path) as history:
        with path.open("r+b") as file:  # all that does not fit into SQLite's cache
            file.seek(4096)
            file.write(b"\xff" * (path.stat().st_size - 4096))
        with pytest.raises(errors.LocalspecError, match="cannot be read or written") as caught:
            await history.use(chat, lambda store: store.messages(chat.id))
        assert "sets the file aside" in caught.value.remedy
    async with opened(path) as again:
        assert await again.summaries(ALL) == ()
    assert list(path.parent.glob("*.damaged-*"))


async def test_a_full_disk_has_an_error_of_its_own(history: ChatHistory) -> None:
    chat = await history.new_session(Options(), SessionOpen())
    await fill(history)
    with pytest.raises(DiskFull, match="no space left"):
        await history.use(chat, lambda store: store.begin_turn(chat.id, TurnRequest("x" * 100_000)))
    assert await history.use(chat, lambda store: store.messages(chat.id)) == ()


async def fill(history: ChatHistory, pages: int = 0) -> None:
    """From now on SQLite finds room for no page beyond ``pages``, or for none more than there are."""

    def full() -> None:
        (used,) = history._stored._db.execute("PRAGMA page_count").fetchone()
        history._stored._db.execute(f"PRAGMA max_page_count = {pages or used}")

    await history._do(full)


async def test_a_second_process_learns_that_the_history_is_in_use(path: Path) -> None:
    program = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom localspec.daemon.chats import ChatHistory\n"
        "from localspec.errors import DaemonUnavailable\n"
        "try:\n    asyncio.run(ChatHistory(Path(sys.argv[1])).open())\n"
        "except DaemonUnavailable as error:\n    sys.exit(error.message)\n"
    )
    async with opened(path):
        with pytest.raises(errors.DaemonUnavailable, match="another daemon uses"):
            await ChatHistory(path).open()
        command = [sys.executable, "-c", program, str(path)]
        other = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert other.returncode == 1 and "another daemon uses" in other.stderr, other.stderr
    async with opened(path):
        pass


async def test_the_files_are_their_owners(path: Path) -> None:
    umask = os.umask(0)
    try:
        async with opened(path) as history:
            await history.new_session(Options(), SessionOpen())
        files = [each for each in path.parent.iterdir() if each.suffix != ".lock"]
        assert files == [path] and path.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(umask)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
async def test_a_disk_without_room_for_the_lock_keeps_chats_in_memory(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """Of files it has none left: tests/slow/test_full_disk.py has a real one, which root alone can mount."""

    def full(*args: object, **kwargs: object) -> int:
        raise OSError(error, os.strerror(error))

    history = ChatHistory(path)
    with monkeypatch.context() as disk:
        disk.setattr(os, "open", full)
        await history.open()
    assert history.problem is not None and "in memory only" in str(history.problem.remedy)
    chat = await history.new_session(Options(), SessionOpen())
    assert await history.session(chat.id) == chat
    await history.close()
