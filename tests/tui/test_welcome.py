"""The welcome that a chat without messages shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from localspec.cli.app import app
from localspec.protocol.messages import Pairing
from localspec.tui.widgets.transcript import Transcript
from localspec.tui.widgets.welcome import FIRST, Welcome
from tests.tui.harness import playing
from tests.tui.test_models import described


@pytest.mark.slow
async def test_the_models_in_use_and_the_first_steps_are_shown(home: Path) -> None:
    async with playing() as player:

        def seen() -> str:
            return " ".join(" ".join(player.lines()).split())

        await player.until(lambda: "The only model here" in seen(), "models are listed")
        assert "stdlib-6m answers, stdlib-1m drafts" in seen() and "localspec models pull" in seen()
        pair = Pairing("one", None, "auto", "llama_cpp", "no draft model: none is smaller")
        models = [described("bundled", store="bundled"), described("one", store="ollama")]
        player.screen.query_one(Welcome).show(pair, models)
        await player.settle()
        assert "one answers (no draft model: none is smaller)." in seen()
        assert "The only model here" not in seen()


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


def test_the_command_in_it_is_one() -> None:
    (command,) = re.findall(r"^  localspec (.*)$", FIRST, re.MULTILINE)
    found, bound, _ = app.parse_args(shlex.split(command), print_error=False, exit_on_error=False)
    assert found.__name__ == "pull" and not bound.args
