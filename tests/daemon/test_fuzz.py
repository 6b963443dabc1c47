"""Damaged handshakes and frames against a real daemon; tests/slow/test_fuzz.py has many more."""

from __future__ import annotations

import asyncio

import pytest

from tests.daemon.attack import CLOSE, PING, TEXT, Script, Tally, frame, play
from tests.daemon.conftest import StartDaemon
from tests.daemon.handshake import request
from tests.daemon.siege import besiege

CONNECTIONS = 300
SEED = 1


@pytest.mark.slow
def test_nobody_else_notices_an_attack(start: StartDaemon) -> None:
    print(asyncio.run(besiege(start(max_frame=65536, max_queued=10_000), CONNECTIONS, SEED)))


@pytest.mark.slow
def test_who_answers_no_ping_is_closed(start: StartDaemon) -> None:
    scripts = [
        Script("no answer to pings", False, [], "stay", request({})),
        Script("a frame that never ends", False, [frame(TEXT, b"x", size=60_000)], "stay", request({})),
        Script("an open fragment", False, [frame(TEXT, b"{", first=0)], "stay", request({})),
    ]

    async def test() -> None:
        daemon = start(ping_interval_s=0.2)
        await asyncio.gather(*(play(daemon, script, Tally()) for script in scripts))

    asyncio.run(test())


@pytest.mark.slow
def test_who_breaks_the_protocol_is_closed_without_waiting(start: StartDaemon) -> None:
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

    async def test() -> None:
        daemon = start(max_frame=65536, ping_interval_s=600)
        tally = Tally()
        for said in broken:
            await play(daemon, Script("broken", False, [said], "stay", request({})), tally)
        assert tally.answers == {"close 1002": 5, "close 1007": 1, "close 1009": 2}

    asyncio.run(test())
