"""The welcome that a chat without messages shows."""

from __future__ import annotations

from pathlib import Path

from textual.widgets import Static

from localspec.models.catalogue import DEFAULT
from localspec.protocol.messages import Pairing
from localspec.tui.widgets.transcript import Welcome
from tests.tui.harness import playing
from tests.tui.showing import conversation, show, showing
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
        player.screen.query_one(Welcome).show(Pairing("two", None, "auto", "llama_cpp", ""), models)
        await player.settle()
        assert "two answers (1.0 GB). Ctrl-O: the models here" in player.seen()


async def test_it_leaves_at_once_and_comes_back_with_a_chat_without_messages(still: Path) -> None:
    async with showing() as player:
        show(player, conversation())
        player.screen._dirty_widgets |= {Static(), player.screen.query_one("#status")}
        player.screen._on_timer_update()  # paints, with a new widget, before the messages are laid out
        await player.settle()
        assert "common leading whitespace" in player.seen()
        show(player, [])
        await player.settle()
        assert player.screen.query_one(Welcome).display and not player.transcript.display
        await player.press("tab", "escape", "tab", "escape", "y")
        assert player.typed == "y"
