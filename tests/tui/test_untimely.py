"""What comes at the wrong moment: edits of what is gone, drafts that are in the way."""

from __future__ import annotations

from pathlib import Path

from localspec.tui import facts
from localspec.tui.conversation import Question
from localspec.tui.widgets.prompt import Composer, Prompt
from localspec.tui.widgets.transcript import Transcript
from tests.tui.harness import Player
from tests.tui.pictures import answered, conversation, show, showing
from tests.waiting import run


def write(player: Player, text: str) -> None:
    player.screen.query_one(Composer).text = text


def title(player: Player) -> str:
    return player.screen.query_one(Prompt).title


def test_an_edit_of_a_question_that_is_gone_is_left_and_its_text_kept(still: Path) -> None:
    async def test() -> None:
        async with showing([*conversation(), Question("And then?", 3), answered()]) as player:
            write(player, "draft")
            await player.press("ctrl+g", "x")
            assert player.typed == "And then?x" and title(player)
            player.chat.said = player.chat.said[:2]
            player.screen.post_message(facts.Changed())
            await player.settle()
            assert player.typed == "And then?x" and not title(player)
            await player.press("up")
            assert player.typed == "draft"

    run(test())


def test_what_is_wanted_of_a_message_that_is_gone_is_refused(still: Path) -> None:
    async def test() -> None:
        async with showing(conversation()) as player:
            screen, (question, gone) = player.screen, player.chat.said
            player.chat.said = [question, answered()]
            screen.post_message(Transcript.Asked("edit", gone))
            await player.settle()
            assert player.toasts == ["this message is gone Choose one of those that are shown."]
            player.chat.said = [gone]
            screen.post_message(Transcript.Asked("edit", gone))
            await player.settle()
            assert player.toasts[1:] == ["nothing was asked yet Ask something first."]

    run(test())


def test_a_draft_comes_back_after_an_edit(still: Path) -> None:
    async def test() -> None:
        async with showing(conversation()) as player:
            write(player, "half a")
            await player.press("ctrl+g", "ctrl+g", "escape")
            assert player.typed == "half a" and not title(player)
            await player.press("ctrl+g")
            show(player, [])
            assert player.typed == "half a" and not title(player)
            player.screen.begin("/rename ")
            assert player.typed == "/rename "
            await player.press("escape", "up")
            assert player.typed == "half a"

    run(test())
