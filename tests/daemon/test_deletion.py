"""Chats' caches through real and echo daemons: kept over restarts; a deleted chat leaves nothing."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from localspec.memory.memory import Memory
from localspec.memory.ngrams import MemoryText
from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import REAL_DAEMON, DaemonProcess, Raw, code, raw
from tests.daemon.test_history import open_session
from tests.daemon.test_store import anywhere
from tests.waiting import until

QUESTION = "What does textwrap.dedent do? " * 20


async def say(client: Raw, session: str, text: str) -> Any:
    options = {"temperature": 0.7, "max_tokens": 8}
    return await client.result(text[:8], "chat/send", session=session, content=text, options=options)


def caches(home: Path) -> list[Path]:
    return list((home / "cache" / "chats").glob("*/*.state"))


@pytest.mark.slow
async def test_a_chat_goes_on_after_a_kill_and_after_a_restart_without_being_read_again(
    start: StartDaemon, home: Path
) -> None:
    daemon = start(command=REAL_DAEMON)
    async with raw(daemon) as client:
        session = await open_session(client)
        await say(client, session, QUESTION)
        # A kill leaves only the caches that were written while the worker was idle.
        await until(lambda: len(caches(home)) == 1, "the chat's cache is on disk")
    daemon.stop(signal.SIGKILL)
    for _ in range(2):
        daemon = start(command=REAL_DAEMON)
        async with raw(daemon) as client:
            result = await say(client, session, "And indent?")
            assert result["cached_tokens"] > 100 and result["prompt_tokens"] > result["cached_tokens"]
        assert daemon.stop() == 0, daemon.log()


@pytest.mark.slow
async def test_a_deleted_chat_and_a_private_one_leave_no_cache_and_nothing_in_the_memory(
    start: StartDaemon, home: Path
) -> None:
    daemon = start(command=REAL_DAEMON)
    async with raw(daemon) as client:
        session = await open_session(client)
        await say(client, session, QUESTION + "marker-4711")
        await until(lambda: len(caches(home)) == 1, "the chat's cache is on disk")
        await client.call("delete", "session/delete", session=session)
        assert caches(home) == []
        assert session not in str(await client.result("stats", "memory/stats"))
        await say(client, await open_session(client, private=True), QUESTION)
    assert daemon.stop() == 0, daemon.log()
    assert caches(home) == [] and anywhere(home, "marker-4711") == []


def taught(home: Path, source: str) -> None:
    """As if a worker had learnt of it."""
    memory = Memory(home / "data" / "memory", "0123456789abcdef", lambda _: b"x")
    memory.learn(MemoryText(list(range(200)), None, source))
    memory.close()


async def taught_session(daemon: DaemonProcess, client: Raw) -> str:
    session = await open_session(client)
    taught(daemon.home, f"chat:{session}")
    assert anywhere(daemon.home / "data" / "memory", session)
    return session


@pytest.mark.slow
@pytest.mark.parametrize("how", ["cancel", "leave"])
async def test_a_deletion_that_was_begun_is_finished(own: DaemonProcess, how: str) -> None:
    memory = own.home / "data" / "memory"
    async with raw(own) as client:
        session = await taught_session(own, client)
        await client.ask(1, "session/delete", session=session)
        if how == "cancel":
            await client.notify("$/cancelRequest", id=1)
            assert (await client.response(1))["result"] == {}
            assert anywhere(memory, session) == []
    await until(lambda: anywhere(memory, session) == [], "nothing tells of the chat")


@pytest.mark.slow
async def test_what_cannot_be_forgotten_is_reported_with_what_to_do(own: DaemonProcess, alone: Raw) -> None:
    session = await taught_session(own, alone)
    (table,) = (own.home / "data" / "memory").rglob("*.ngm")
    lock = table.parent / "lock"
    lock.unlink(missing_ok=True)
    lock.mkdir()  # it cannot be taken
    failed = await alone.call(1, "session/delete", session=session)
    assert f"memory forget --yes --source chat:{session}" in failed["error"]["data"]["remedy"]
    assert code(await alone.call(2, "session/get", session=session)) == "session_not_found"


@pytest.mark.slow
async def test_a_chat_that_is_deleted_while_its_model_is_unloaded_leaves_nothing(
    start: StartDaemon, home: Path
) -> None:
    os.mkfifo(home / "gate")
    async with raw(start(options={"model": f"late:{home / 'gate'}"})) as client:
        session = await open_session(client)
        await client.call(1, "chat/send", session=session, content="hello")
        await client.ask(2, "models/unload")
        await client.ask(3, "session/delete", session=session)
        while "result" in await client.call(4, "session/get", session=session):
            pass
        assert 3 not in client.unclaimed, "who is ending may write something yet"
        await asyncio.to_thread((home / "gate").write_text, "end")
        assert "result" in await client.response(2) and "result" in await client.response(3)
        assert caches(home) == []
