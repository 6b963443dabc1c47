"""A text's tokens, requested from a daemon."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

import localspec
from tests.daemon.conftest import StartDaemon
from tests.daemon.harness import REAL_DAEMON, DaemonProcess, Raw, code, raw

TEXT = "def grüße(🐻): # <|im_end|>"


@pytest.fixture
def real(home: Path, start: StartDaemon) -> DaemonProcess:
    return start(command=REAL_DAEMON)


@pytest.mark.slow
@pytest.mark.parametrize("special", [False, True])
async def test_they_are_those_of_the_engine(real: DaemonProcess, special: bool) -> None:
    async with raw(real) as client:
        found = (await client.result(1, "tokenize", text=TEXT, special=special, pieces=True))["tokens"]
        with localspec.load("bundled", draft="none") as engine:
            vocabulary = engine.target.vocabulary
            assert [token["id"] for token in found] == vocabulary.encode(TEXT, special=special)
        assert b"".join(base64.b64decode(token["piece"]) for token in found).decode() == TEXT


@pytest.mark.slow
async def test_a_worker_that_dies_fails_it_and_the_next_one_answers(client: Raw) -> None:
    assert code(await client.call(1, "tokenize", text="x", model="dies")) == "engine_crashed"
    assert len((await client.result(2, "tokenize", text="x" * 1000))["tokens"]) == 1000
