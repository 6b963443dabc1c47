"""The welcome that a chat without messages shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from textual.widgets import OptionList

from localspec.cli.app import app
from localspec.protocol.sessions import Pairing
from localspec.tui.conversation import Question
from localspec.tui.widgets.transcript import Transcript
from localspec.tui.widgets.welcome import EXAMPLES, FIRST, Welcome
from tests.tui.harness import Player, playing
from tests.tui.test_models import described


def seen(player: Player) -> str:
    """The words on the screen."""
    return " ".join(" ".join(player.lines()).split())


async def greeted(player: Player) -> None:
    """Wait until the welcome shows its list."""
    await player.until(
        lambda: player.screen.query_one(Welcome).query_one(OptionList).display, "the person is greeted"
    )


@pytest.mark.slow
async def test_who_is_alone_is_told_what_to_do(home: Path) -> None:
    async with playing() as player:
        await greeted(player)
        told = seen(player)
        assert "stdlib-6m answers, stdlib-1m drafts" in told and "the bundled pair" in told
        assert "The only model here" in told and "localspec models pull" in told
        assert all(example in told for example in EXAMPLES)


@pytest.mark.slow
async def test_an_example_is_asked_by_keys_and_the_welcome_goes(home: Path) -> None:
    async with playing(size=(60, 20)) as player:
        await greeted(player)
        await player.press("tab")
        assert EXAMPLES[0] in seen(player)  # it was scrolled to
        await player.press("down", "enter")
        await player.answered(None)
        question = player.chat.said[0]
        assert isinstance(question, Question) and question.text == EXAMPLES[1]
        assert not player.screen.query_one(Welcome).display and EXAMPLES[2] not in seen(player)
        await player.write("x")
        assert player.typed == "x"


@pytest.mark.slow
async def test_an_example_is_clicked(home: Path) -> None:
    async with playing() as player:
        await greeted(player)
        await player._pilot.click("Welcome OptionList", offset=(4, 2))
        await player.answered(None)
        assert player.chat.said[0].text == EXAMPLES[2]


@pytest.mark.slow
async def test_it_comes_back_with_a_chat_in_which_nothing_was_said(home: Path) -> None:
    async with playing() as player:
        await player.say("Hi")
        player.screen.show(player.app.new_chat())
        await player.settle()
        assert player.screen.query_one(Welcome).display
        assert not player.screen.query_one(Transcript).display
        await player.press("tab", "escape", "tab", "escape")
        await player.write("y")
        assert player.typed == "y"


@pytest.mark.slow
async def test_who_has_models_is_told_nothing_of_the_bundled_one(home: Path) -> None:
    async with playing() as player:
        pair = Pairing("one", None, "auto", "llama_cpp", "no draft model: none is smaller")
        await greeted(player)
        welcome = player.screen.query_one(Welcome)
        welcome.show(pair, [described("bundled", store="bundled"), described("one", store="ollama")])
        await player.settle()
        told = seen(player)
        assert "one answers (no draft model: none is smaller)." in told
        assert "The only model here" not in told and EXAMPLES[0] not in told


def test_the_command_that_is_told_is_one() -> None:
    (command,) = re.findall(r"^  localspec (.*)$", FIRST, re.MULTILINE)
    found, bound, _ = app.parse_args(shlex.split(command), print_error=False, exit_on_error=False)
    assert found.__name__ == "pull" and not bound.args
