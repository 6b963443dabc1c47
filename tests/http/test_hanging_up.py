"""Who hangs up is not worked for any longer, whatever was asked and however far it was."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.http.door import Door, wire
from tests.waiting import run, until_sync

CHAT = {"messages": [{"role": "user", "content": "stall"}], "model": "localspec"}
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", CHAT),
    ("/v1/completions", {"prompt": "stall"}),
    ("/completion", {"prompt": "stall"}),
    ("/infill", {"prompt": "stall"}),
    ("/api/generate", {"model": "localspec", "prompt": "stall", "raw": True}),
    ("/api/chat", CHAT),
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("path", "body"), ASKED, ids=[path for path, _ in ASKED])
def test_the_sequence_is_free_again(echo: Door, path: str, body: dict[str, Any], stream: bool) -> None:
    with echo.sent(path, body | {"stream": stream}) as connection:
        if stream and path != "/infill":
            assert connection.recv(12) == b"HTTP/1.1 200"
        echo.until_busy()
    echo.until_idle()
    assert echo.ask("GET", "/health").status_code == 200


def test_others_are_not_disturbed(echo: Door) -> None:
    body = {"prompt": "then word"}
    with echo.sent("/completion", {"prompt": "stall", "stream": True}):
        echo.until_busy()
        assert echo.post("/completion", body)["content"]
        with echo.sent("/completion", {"prompt": "stall", "stream": True}):
            assert echo.post("/completion", body)["content"]
        assert echo.post("/completion", body)["content"]
    echo.until_idle()


def test_tokens_of_a_model_that_is_being_loaded(echo: Door, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    before = len(echo.daemon.workers())
    with echo.sent("/tokenize", {"content": "x", "model": f"gate:{gate}"}):
        until_sync(lambda: len(echo.daemon.workers()) > before, "it is being loaded")
        echo.until_connected(1)
    echo.until_connected(0)


def test_there_is_room_for_others_and_who_finds_none_is_told(echo: Door) -> None:
    with ExitStack() as stack:
        for _ in range(32):
            stack.enter_context(echo.sent("/completion", {"prompt": "stall"}))
        echo.until_connected(32)
        refused = echo.ask("POST", "/completion", {"prompt": "then word"})
        assert refused.status_code == 429 and "the door takes no more" in refused.text
        assert len(run(tokens(echo))) == 1, "the wire has room"
    echo.until_idle()
    assert echo.post("/completion", {"prompt": "then word"})["content"]


async def tokens(echo: Door) -> Sequence[object]:
    async with await wire(echo.daemon) as client:
        return await client.tokenize("x")
