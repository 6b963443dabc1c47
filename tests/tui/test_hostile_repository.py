"""The chat in a hostile clone: naming a file there leaves it alive."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.memory.hostile_repository import RULES, make
from tests.tui.harness import playing
from tests.waiting import soon, until

pytestmark = pytest.mark.slow
LONGEST_S = 1.0
"""without a step of the event loop, on a loaded machine"""


@pytest.mark.parametrize("kind", RULES)
async def test_the_chat_stays_alive(
    kind: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "clone", kind)
    monkeypatch.setenv("LOCALSPEC_HOME", str(home))
    monkeypatch.chdir(tmp_path / "clone")
    async with playing() as player, heartbeat() as gaps:
        await player.write("@a")
        await until(lambda: player.screen.files._search is not None, "files are looked for")
        assert player.screen.files._search is not None
        await soon(asyncio.shield(player.screen.files._search))
        print(f"{kind}: {max(gaps):.3f} s without a beat")
        assert max(gaps) < LONGEST_S


@contextlib.asynccontextmanager
async def heartbeat() -> AsyncIterator[list[float]]:
    """The seconds between two steps of the event loop, meanwhile."""
    gaps = [0.0]

    async def beat() -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.005)
            gaps.append(time.monotonic() - last)
            last = time.monotonic()

    task = asyncio.create_task(beat())
    try:
        yield gaps
    finally:
        task.cancel()
