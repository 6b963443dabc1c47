"""The texts of whole screens, wide and narrow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from localspec.errors import LocalspecError
from localspec.protocol.options import Options
from localspec.protocol.results import Token
from localspec.tui import facts
from localspec.tui.conversation import Question
from localspec.tui.dialogs.choose import Choice, ChooseScreen
from localspec.tui.dialogs.confirm import deletion
from localspec.tui.dialogs.sampling import SamplingScreen
from tests.tui.harness import Player
from tests.tui.showing import answered, conversation, growing, show, showing

WIDE = (100, 30)
NARROW = (60, 20)
CHOICES = (
    Choice("a", "qwen2.5-coder-7b", "7.6 B · Q4_K_M · 4.7 GB · loaded", current=True),
    Choice("b", "stdlib-6m", "6.3 M · F16 · 12.6 MB"),
    Choice("c", "llama-3.2-1b", "1.2 B · 2.5 GB", problem="its file is cut off"),
)


async def conversed(player: Player) -> None:
    player.chat.title = "What does textwrap.dedent do with the blanks of a line?"
    player.screen.post_message(facts.Ended())


async def one_of_several(player: Player) -> None:
    await player.app.push_screen(ChooseScreen("Model", list(CHOICES)))


async def nothing_found(player: Player) -> None:
    await one_of_several(player)
    await player.press("z", "z")


async def sampling(player: Player) -> None:
    options = Options(temperature=0.2, stop=("END",)), Options(temperature=0.8, top_k=40)
    await player.app.push_screen(SamplingScreen(*options))


async def deleting(player: Player) -> None:
    await player.app.push_screen(deletion("What does textwrap.dedent do?"))


async def loading(player: Player) -> None:
    player.screen.post_message(facts.Working("loading the target model", 0.62))


async def failed(player: Player) -> None:
    answer = growing("One, two,", "draft 3 1")
    answer.status = "failed"
    answer.error = LocalspecError("the model needs 9.1 GB, and 7.4 GB are free", "Choose a smaller one.")
    show(player, [Question("Count."), answer])


async def folded(player: Player) -> None:
    lines = "\n".join(f"line {number} of what was pasted" for number in range(60))
    show(player, [Question(f"What is this?\n{lines}"), answered("Lines.", "draft 2 1")])


async def edited(player: Player) -> None:
    await player.press("ctrl+g")


async def chosen(player: Player) -> None:
    await player.press("alt+up", "s")


async def more_below(player: Player) -> None:
    answer = growing("- and another line\n" * 30)
    show(player, [*conversation(), Question("And what of tabs?"), answer])
    await player.press("pageup")
    answer.grow("- the last\n", [Token(0, "target", 11)])
    player.screen.post_message(facts.Grown())


SCREENS: tuple[tuple[Callable[[Player], Awaitable[None]], tuple[str, ...]], ...] = (
    (conversed, ("Lines with only blanks", "What does textwrap.dedent do with", "212 tok/s", "f1 Help")),
    (one_of_several, ("Model", "qwen2.5-coder-7b", "stdlib-6m", "its file is cut off")),
    (nothing_found, ("zz", "Nothing matches.")),
    (sampling, ("0.2", '["END"]', "40, from the configuration", "0 is greedy")),
    (deleting, ("Delete “What does textwrap.dedent do?”?", "Delete (y)", "Cancel (esc)")),
    (loading, ("loading the target model", "62%")),
    (failed, ("One, two,", "the model needs 9.1 GB", "Choose a")),
    (folded, ("line 10 of", "… 49 more lines; s shows them", "Lines.")),
    (edited, ("Edits the question", "What does `textwrap.dedent` do?")),
    (chosen, ("84 tokens (stop)", "drafted tokens accepted (74%)", "↑ Previous")),
    (more_below, ("↓ more below: Ctrl+End", "84 tokens")),
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


async def test_a_window_that_is_too_small_says_so(still: Path) -> None:
    async with showing(conversation(), size=(20, 5)) as player:
        assert player.lines() == ["The window is too", "small.", "", "", ""]
        player.screen.notify("a long notice " * 9)
        await player.press("x")
        await player.resize(20, 9)
        assert player.lines()[5].startswith("│ x")


async def test_notices_cover_no_text(still: Path) -> None:
    async with showing(conversation(), size=NARROW) as player:
        player.screen.notify("Copied.")
        player.screen.show_error(LocalspecError("it does not fit", "Choose a smaller one."))
        await player.until(lambda: "▌ Choose a smaller one." in player.lines(), "they are shown")
        lines = player.lines()
        assert lines[-8:-5] == ["▌ Copied.", "▌ it does not fit", "▌ Choose a smaller one."]
        assert "It is meant for strings" in lines[-10] and "Ask something" in lines[-4]
