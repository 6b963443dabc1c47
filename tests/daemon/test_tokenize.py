"""A text's tokens, requested from a daemon."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest

import localspec
from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import REAL_DAEMON, DaemonProcess, code, raw
from tests.waiting import run

LONGEST = 1 << 18
"""the largest number of characters of a text"""
TEXT = "def grüße(🐻): # <|im_end|>"


@pytest.fixture
def real(home: Path, start: StartDaemon) -> DaemonProcess:
    return start(command=REAL_DAEMON)


@pytest.mark.slow
@pytest.mark.parametrize("special", [False, True])
def test_they_are_those_of_the_engine(real: DaemonProcess, special: bool) -> None:
    async def test() -> None:
        async with raw(real) as client:
            found = (await client.call(1, "tokenize", text=TEXT, special=special, pieces=True))["result"][
                "tokens"
            ]
            with localspec.load("bundled", draft="none") as engine:
                vocabulary = engine.target.vocabulary
                assert [token["id"] for token in found] == vocabulary.encode(TEXT, special=special)
            assert b"".join(base64.b64decode(token["piece"]) for token in found).decode() == TEXT

    run(test())


@pytest.mark.slow
def test_others_are_answered_while_a_long_text_is_tokenized(real: DaemonProcess) -> None:
    async def test() -> None:
        async with raw(real) as client, raw(real) as other:
            await other.call(1, "generate", prompt="a", options={"max_tokens": 1})
            await client.ask(1, "tokenize", text=" " * LONGEST)
            long = asyncio.create_task(client.response(1))
            await other.call(2, "generate", prompt="a b", options={"max_tokens": 1})
            assert not long.done()
            assert 64 * len((await long)["result"]["tokens"]) >= LONGEST

    run(test())


@pytest.mark.slow
def test_a_worker_ends_in_order_while_a_long_text_is_tokenized(real: DaemonProcess) -> None:
    async def test() -> None:
        async with raw(real) as client, raw(real) as other:
            await other.call(1, "generate", prompt="a", options={"max_tokens": 1})
            for id in range(1, 5):
                await client.ask(id, "tokenize", text=" " * LONGEST)
            await other.call(2, "generate", prompt="a b", options={"max_tokens": 1})
            await asyncio.to_thread(real.stop)

    run(test())
    assert "exited with code 0" in real.log() and "killed" not in real.log()


@pytest.mark.slow
def test_a_worker_that_dies_fails_it_and_the_next_one_answers(daemon: DaemonProcess) -> None:
    async def test() -> None:
        async with raw(daemon) as client:
            assert code(await client.call(1, "tokenize", text="x", model="dies")) == "engine_crashed"
            assert len((await client.call(2, "tokenize", text="x" * 1000))["result"]["tokens"]) == 1000

    run(test())
