"""The caches of chats, through a real daemon with the bundled pair: kept over restarts, gone with chats."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.harness import REAL_DAEMON, DaemonProcess, Raw, raw
from tests.daemon.test_history import open_session
from tests.daemon.test_store import anywhere
from tests.waiting import run, until

QUESTION = "What does textwrap.dedent do? " * 20


def live(home: Path, talk: Callable[[Raw], Coroutine[Any, Any, None]], *, kill: bool = False) -> None:
    """One life of a daemon."""
    daemon = DaemonProcess(home, command=REAL_DAEMON)

    async def test() -> None:
        async with raw(daemon) as client:
            await talk(client)

    try:
        run(test())
    finally:
        if kill:
            daemon.process.kill()
            daemon.process.wait()
        else:
            assert daemon.stop() == 0, daemon.log()


async def say(client: Raw, session: str, text: str) -> dict[str, Any]:
    options = {"temperature": 0.7, "max_tokens": 8}
    answer = await client.call(text[:8], "chat/send", session=session, content=text, options=options)
    result: dict[str, Any] = answer["result"]
    return result


def caches(home: Path) -> list[Path]:
    return list((home / "cache" / "chats").glob("*/*.state"))


@pytest.mark.slow
def test_a_chat_goes_on_after_a_restart_and_after_a_kill_without_being_read_again(home: Path) -> None:
    session = ""

    async def first(client: Raw) -> None:
        nonlocal session
        session = await open_session(client)
        await say(client, session, QUESTION)
        # What is written while nobody asks is what a kill leaves.
        await until(lambda: len(caches(home)) == 1, "the chat's cache is on disk")

    async def second(client: Raw) -> None:
        result = await say(client, session, "And indent?")
        assert result["cached_tokens"] > 100 and result["prompt_tokens"] > result["cached_tokens"]

    live(home, first, kill=True)
    live(home, second)
    live(home, second)


@pytest.mark.slow
def test_a_deleted_chat_leaves_no_cache_and_nothing_in_the_memory(home: Path) -> None:
    async def talk(client: Raw) -> None:
        session = await open_session(client)
        await say(client, session, QUESTION + "marker-4711")
        await until(lambda: len(caches(home)) == 1, "the chat's cache is on disk")
        await client.call("delete", "session/delete", session=session)
        assert caches(home) == []
        stats = (await client.call("stats", "memory/stats"))["result"]
        assert session not in str(stats)

    live(home, talk)
    assert caches(home) == [] and anywhere(home, "marker-4711") == []


@pytest.mark.slow
def test_a_private_chat_leaves_no_cache(home: Path) -> None:
    async def talk(client: Raw) -> None:
        answer = await client.call("open", "session/open", private=True)
        await say(client, answer["result"]["session"], QUESTION)

    live(home, talk)
    assert caches(home) == []
