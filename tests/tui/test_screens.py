"""The texts of whole screens, wide and narrow."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.errors import LocalspecError
from localspec.tui import facts
from localspec.tui.dialog import Permission
from tests.tui.showing import conversation, showing

NARROW = (60, 20)


@pytest.mark.parametrize("size", [(100, 30), NARROW], ids=["wide", "narrow"])
async def test_a_screen(still: Path, size: tuple[int, int]) -> None:
    async with showing(conversation(), size=size) as player:
        player.chat.title = "What does textwrap.dedent do with the blanks of a line?"
        player.screen.post_message(facts.Grown(ended=True))
        await player.pause()
        lines = player.lines()
        assert len(lines) == size[1] and max(map(len, lines)) <= size[0]
        seen = "\n".join(lines)
        for text in ("Lines with only blanks", "What does textwrap.dedent do with", "212 tok/s", "F1 Help"):
            assert text in seen


async def test_notices_cover_no_text(still: Path) -> None:
    async with showing(conversation(), size=NARROW) as player:
        player.screen.notify("Copied.")
        player.screen.show_error(LocalspecError("it does not fit", "Choose a smaller one."))
        await player.until(lambda: "▌ Choose a smaller one." in player.lines(), "they are shown")
        lines = player.lines()
        assert lines[-8:-5] == ["▌ Copied.", "▌ it does not fit", "▌ Choose a smaller one."]
        assert "212 tok/s" in lines[-10] and "Ask something" in lines[-4]
        player.app.push_screen(Permission("time {}", player.screen.prompt))
        await player.until(lambda: "time {}" in player.seen(), "it is asked")
        assert player.seen().count("Copied.") == 1
