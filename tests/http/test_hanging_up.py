"""Who hangs up is not worked for any longer, whatever was asked and however far it was."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.door import Door

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
