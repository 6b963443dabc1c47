"""Hundreds of thousands of damaged messages, thousands of hostile connections: the daemon lives on."""

from __future__ import annotations

import asyncio
import os
import random

import pytest

from tests.daemon.attack import Script, Tally, play
from tests.daemon.conftest import StartDaemon, home, start
from tests.daemon.siege import besiege
from tests.protocol.fuzzing import fuzz_messages
from tests.slow.share import share

__all__ = ["home", "start"]

pytestmark = pytest.mark.slow

MESSAGES, CONNECTIONS = share(200_000), share(6000)


@pytest.fixture
def seed() -> int:
    """Another one each time; LOCALSPEC_FUZZ_SEED repeats one that was printed."""
    return int(os.environ.get("LOCALSPEC_FUZZ_SEED") or random.randrange(1 << 30))


def test_messages(seed: int) -> None:
    endings = fuzz_messages(MESSAGES, seed)
    print(f"seed {seed}: {endings.total()} messages, {dict(endings)}, 0 crashes")
    assert endings.total() == MESSAGES and len(endings) == 6


def test_connections(start: StartDaemon, seed: int) -> None:
    daemon = start(tcp=True, max_frame=65536, max_queued=10_000)
    print(asyncio.run(besiege(daemon, CONNECTIONS, seed, patient=True)))


def test_who_sends_no_handshake_is_closed(start: StartDaemon) -> None:
    """By its deadline, five seconds."""
    scripts = [Script("nothing", True, [], "stay"), Script("a byte", False, [b"G"], "stay")]

    async def test() -> None:
        daemon = start(tcp=True)
        await asyncio.gather(*(play(daemon, script, Tally()) for script in scripts))

    asyncio.run(test())
