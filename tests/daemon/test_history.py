"""Chats: what is stored, when, and what the next turn sees of it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import DaemonProcess, Raw, code, raw


async def open_session(client: Raw, **params: Any) -> str:
    opened = await client.call("open", "session/open", **params)
    return str(opened["result"]["session"])


async def content(client: Raw, session: str) -> list[tuple[str, str]]:
    found = await client.result("get", "session/get", session=session)
    return [(message["role"], message["content"]) for message in found["messages"]]


def stored(daemon: DaemonProcess) -> list[tuple[str, str, str]]:
    """(role, content, status) of every message in the file."""
    with sqlite3.connect(daemon.home / "data" / "history.sqlite") as db:
        rows = db.execute("SELECT role, content, status FROM messages ORDER BY id").fetchall()
    db.close()
    return rows


async def test_a_failed_answer_leaves_a_history_that_alternates(daemon: DaemonProcess, client: Raw) -> None:
    session = await open_session(client)
    assert code(await client.call(1, "chat/send", session=session, content="fail")) == "out_of_memory"
    assert await content(client, session) == [("user", "fail"), ("assistant", "")]
    assert "result" in await client.call(2, "chat/send", session=session, content="hello")
    answer = await client.result(3, "chat/send", session=session, content="prompt")
    roles = [(m["role"], m["content"]) for m in json.loads(answer["text"])["messages"]]
    assert roles == [("user", "hello"), ("assistant", "hello "), ("user", "prompt")]
    assert ("assistant", "", "failed") in stored(daemon)


async def test_turns_of_a_session_wait_for_each_other(client: Raw, other: Raw) -> None:
    session = await open_session(client)
    await client.begin(1, "chat/send", session=session, content="stall")
    await other.ask(1, "chat/send", session=session, content="second")
    await other.ask(2, "chat/send", session=session, content="third")
    assert (await other.notice("stream/progress"))["params"]["stage"] == "queued"
    await other.cancel(2)
    await client.notify("$/cancelRequest", id=1)
    assert (await other.response(1))["result"]["text"] == "second "
    await client.response(1)
    assert await content(client, session) == [
        ("user", "stall"),
        ("assistant", "stalling"),
        ("user", "second"),
        ("assistant", "second "),
    ]


def rows(db: sqlite3.Connection) -> list[object]:
    return [*db.execute("PRAGMA user_version"), *db.execute("SELECT * FROM sessions")]


@pytest.mark.parametrize("why", ["newer", pytest.param("locked", marks=pytest.mark.slow)])
async def test_a_history_that_cannot_be_used_is_left_alone_and_chats_go_on(
    start: StartDaemon, why: str
) -> None:
    daemon = start()
    async with raw(daemon) as client:
        earlier = await open_session(client)
    daemon.stop()
    file = daemon.home / "data" / "history.sqlite"
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        if why == "newer":
            db.execute("PRAGMA user_version = 99")
        else:
            db.execute("BEGIN IMMEDIATE")
        before = rows(db)
        async with raw(daemon := start()) as client:
            status = await client.result(1, "daemon/status")
            said = "its format is 99, not" if why == "newer" else "database is locked"
            assert said in status["history_problem"] and "in memory only" in status["history_problem"]
            refused = await client.call(2, "session/get", session=earlier)
            assert "earlier chats cannot be read" in str(refused) and said in str(refused)
            session = await open_session(client)
            assert (await client.result(3, "chat/send", session=session, content="x"))["text"] == "x "
        daemon.stop()
        assert rows(db) == before
