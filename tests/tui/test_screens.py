"""The texts of whole screens, wide and narrow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from localspec.errors import LocalspecError
from localspec.tui import facts
from localspec.tui.conversation import ChatQuestion
from localspec.tui.dialog import Confirm, Permission
from tests.tui.harness import Player
from tests.tui.showing import conversation, growing, show, showing

WIDE = (100, 30)
NARROW = (60, 20)


async def conversed(player: Player) -> None:
    player.chat.title = "What does textwrap.dedent do with the blanks of a line?"
    player.screen.post_message(facts.Grown(ended=True))


async def deleting(player: Player) -> None:
    await player.app.push_screen(Confirm("Delete “What does textwrap.dedent do?”?", "Delete"))


async def failed(player: Player) -> None:
    answer = growing("One, two,", "draft 3 1")
    answer.status = "failed"
    answer.error = LocalspecError("the model needs 9.1 GB, and 7.4 GB are free", "Choose a smaller one.")
    show(player, [ChatQuestion("Count."), answer])


async def chosen(player: Player) -> None:
    await player.press("alt+up")


SCREENS: tuple[tuple[Callable[[Player], Awaitable[None]], tuple[str, ...]], ...] = (
    (conversed, ("Lines with only blanks", "What does textwrap.dedent do with", "212 tok/s", "F1 Help")),
    (deleting, ("Delete “What does textwrap.dedent do?”?", "Delete (y)", "Cancel (Esc)")),
    (failed, ("One, two,", "the model needs 9.1 GB", "Choose a")),
    (chosen, ("▌ ▌ It is meant", "Up Previous")),
)


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize(("moment", "texts"), SCREENS, ids=[each[0].__name__ for each in SCREENS])
async def test_a_screen(
    still: Path, moment: Callable[[Player], Awaitable[None]], texts: tuple[str, ...], size: tuple[int, int]
) -> None:
    async with showing(conversation(), size=size) as player:
        await moment(player)
        await player.pause()
        lines = player.lines()
        assert len(lines) == size[1] and max(map(len, lines)) <= size[0]
        seen = "\n".join(lines)
        assert not [text for text in texts if text not in seen], seen


async def test_notices_cover_no_text(still: Path) -> None:
    async with showing(conversation(), size=NARROW) as player:
        player.screen.notify("Copied.")
        player.screen.show_error(LocalspecError("it does not fit", "Choose a smaller one."))
        await player.until(lambda: "▌ Choose a smaller one." in player.lines(), "they are shown")
        lines = player.lines()
        assert lines[-8:-5] == ["▌ Copied.", "▌ it does not fit", "▌ Choose a smaller one."]
        assert "212 tok/s" in lines[-10] and "Ask something" in lines[-4]
        player.app.push_screen(Permission("time {}"))
        await player.until(lambda: "time {}" in player.seen(), "it is asked")
        assert player.seen().count("Copied.") == 1
