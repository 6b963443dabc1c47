"""The welcome that a chat without messages shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.models.catalogue import DEFAULT
from localspec.protocol.messages import Pairing
from localspec.tui.widgets.transcript import Transcript
from localspec.tui.widgets.welcome import Welcome
from tests.tui.harness import playing
from tests.tui.test_models import described


async def test_the_first_screen_says_what_answers_and_how_to_get_a_better_one(home: Path) -> None:
    async with playing(size=(60, 20)) as player:
        await player.until(
            lambda: "stdlib-6m answers: a toy (13.3 MB), good for tests only." in player.seen(),
            "models are listed",
        )
        assert f"Ctrl-O gets a real one: {DEFAULT}, 491.4 MB." in player.seen()
        assert "Enter sends" in player.seen() and "F1 shows keys" in player.seen()
        models = [described("one", store="ollama"), described("two", store="ollama")]
        for name, which in (("one", "the default model"), ("two", "the default is one")):
            pair = Pairing(name, None, "auto", "llama_cpp", "")
            player.screen.query_one(Welcome).show(pair, models, "one")
            await player.settle()
            assert f"{name} answers (1.0 GB, {which}). Ctrl-O: the models here" in player.seen()


@pytest.mark.slow
async def test_it_comes_back_with_a_chat_without_messages(home: Path) -> None:
    async with playing() as player:
        await player.say("Hi")
        player.screen.show(player.app.new_chat())
        await player.settle()
        assert player.screen.query_one(Welcome).display
        assert not player.screen.query_one(Transcript).display
        await player.press("tab", "escape", "tab", "escape")
        await player.write("y")
        assert player.typed == "y"
