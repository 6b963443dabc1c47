"""A chat of a whole day: five hundred turns in one chat, and the program is no larger than after a hundred.

The daemon is a real one, whose workers repeat their prompts: once the context is full, a model would read
the whole chat at each turn. It takes about two minutes.
"""

from __future__ import annotations

import asyncio

import psutil
import pytest

from localspec.protocol.options import Options
from localspec.tui.conversation import Answer
from localspec.tui.widgets.prompt import Composer
from localspec.tui.widgets.transcript import KEPT
from tests.client.conftest import own_home
from tests.daemon.harness import DaemonProcess
from tests.tui.harness import Player, playing

pytestmark = pytest.mark.slow

TURNS, WARM = 500, 100
LONGEST_S = 900.0
"""reached only when something is broken"""
MOST_MORE = 8 * 2**20
"""bytes: messages are kept, a few kB a turn with statistics; the rest is kept by an allocator"""


async def turn(player: Player, number: int) -> None:
    """Send a message, and wait for the end of the answer."""
    before = player.chat.answer
    player.screen.query_one(Composer).text = (
        f"- **{number}** and `code`, and more than fits into one line of the screen: " + "word " * 20
    )
    await player.press("enter")
    await player.answered(before)


async def chat(turns: int, warm: int) -> tuple[list[int], int]:
    """Bytes held after each turn from the ``warm`` one on, and how many messages are painted in the end."""
    held = []
    process = psutil.Process()
    async with playing(Options(temperature=0.0, max_tokens=8)) as player:
        for number in range(turns):
            await turn(player, number)
            if number >= warm:
                held.append(process.memory_info().rss)
        assert len(player.chat.said) == 2 * turns
        assert all(isinstance(a, Answer) and a.result is not None for a in player.chat.said[1::2])
        return held, len(player.transcript._painted)


def test_a_long_chat_costs_no_more_memory_than_a_short_one() -> None:
    with own_home() as home:
        daemon = DaemonProcess(home)
        held, painted = asyncio.run(asyncio.wait_for(chat(TURNS, WARM), LONGEST_S))
        daemon.stop()
    assert max(held[-50:]) - max(held[:50]) < MOST_MORE
    assert painted <= KEPT + 1
