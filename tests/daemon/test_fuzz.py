"""Connections that are closed at once, or soon; tests/slow/test_fuzz.py plays thousands at random."""

from __future__ import annotations

import asyncio

import pytest

from tests.daemon.attack import CLOSE, PING, TEXT, Script, Tally, frame, play
from tests.daemon.conftest import StartDaemon
from tests.daemon.handshake import request


@pytest.mark.slow
async def test_who_answers_no_ping_is_closed(start: StartDaemon) -> None:
    scripts = [
        Script("no answer to pings", False, [], "stay", request({})),
        Script("a frame that never ends", False, [frame(TEXT, b"x", size=60_000)], "stay", request({})),
        Script("an open fragment", False, [frame(TEXT, b"{", first=0)], "stay", request({})),
    ]
    daemon = start(ping_interval_s=0.2)
    await asyncio.gather(*(play(daemon, script, Tally()) for script in scripts))


@pytest.mark.slow
async def test_who_breaks_the_protocol_is_closed_without_waiting(start: StartDaemon) -> None:
    broken = [
        frame(TEXT, b"{}", masked=False),
        frame(TEXT, b"{}", first=0xC0),
        frame(TEXT, b"\xff"),
        frame(PING, bytes(126)),
        frame(CLOSE, b"\x03"),
        frame(3, b""),
        frame(TEXT, b"x", size=2**63),
        frame(TEXT, b"x", size=1 << 20),
    ]
    daemon = start(max_frame=65536, ping_interval_s=600)
    tally = Tally()
    for said in broken:
        await play(daemon, Script("broken", False, [said], "stay", request({})), tally)
    assert tally.answers == {"close 1002": 5, "close 1007": 1, "close 1009": 2}
