"""The caches of chats, through a real daemon with the bundled pair: kept over restarts, gone with chats."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import REAL_DAEMON, Raw, raw
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
