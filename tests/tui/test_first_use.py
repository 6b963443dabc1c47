"""The default model that is not here: offered in the chat, downloaded while the user may type."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from localspec.errors import HubUnavailable
from localspec.hub.default import LARGER, LATER, MissingModel, Progress
from localspec.tui.dialog import Confirm
from tests.tui.harness import Player, playing
from tests.waiting import DEADLINE_S


class Model(MissingModel):
    """A model whose source waits after its first half, or cannot be reached."""

    rest = threading.Event()
    reachable, here, declined = True, False, False
    rested: bool | None = None

    def obtain(self, fetch: Callable[..., None] | None = None, progress: Progress = lambda _: None) -> None:
        if not self.reachable:
            raise HubUnavailable("the hub cannot be reached")
        progress(0.5)
        self.rested = self.rest.wait(DEADLINE_S)
        progress(1.0)
        self.here = True

    def decline(self) -> None:
        self.declined = True


async def half_is_here(player: Player) -> None:
    shown = "qwen2.5-coder:0.5b 50%"
    await player.until(lambda: shown in player.seen(), "it shows how much is here")


async def test_a_message_waits_for_the_download(home: Path) -> None:
    model = Model()
    async with playing(missing=model, settled=False) as player:
        await player.until(lambda: isinstance(player.app.screen, Confirm), "it asks")
        await player.press("y")
        await half_is_here(player)
        await player.write("hi")
        await player.press("enter")
        await player.pause()
        assert player.chat.answer is None
        model.rest.set()
        await player.until(lambda: player.toasts == [LARGER], "a larger model is named, for some seconds")
        await player.until(lambda: player.chat.answer is not None and not player.chat.answering, "it answers")
        assert model.here


async def test_a_refusal_is_kept(home: Path) -> None:
    model = Model()
    async with playing(missing=model, settled=False) as player:
        await player.until(lambda: isinstance(player.app.screen, Confirm), "it asks")
        await player.press("escape")
        await player.settle()
        assert model.declined and player.toasts == [LATER] and player.chat.pairing is not None


async def test_without_a_source_the_bundled_model_answers(home: Path) -> None:
    model = Model()
    model.reachable = False
    async with playing(missing=model, settled=False) as player:
        await player.until(lambda: isinstance(player.app.screen, Confirm), "it asks")
        await player.press("y")
        await player.until(lambda: player.chat.pairing is not None, "a model is loaded")
        assert any("the hub cannot be reached" in each for each in player.toasts)


async def test_letters_of_a_message_do_not_answer_the_question(player: Player) -> None:
    await player.write("no")
    player.screen.attempt(player.app._offer(Model()))
    await player.pause()
    assert not isinstance(player.app.screen, Confirm)
    await player.press("backspace", "backspace")
    await player.until(lambda: isinstance(player.app.screen, Confirm), "it asks")


async def test_leaving_does_not_wait_for_a_source_that_stalls(home: Path) -> None:
    model = Model(agreed=True)
    model.rest = threading.Event()
    async with playing(missing=model, settled=False) as player:
        await half_is_here(player)
    assert model.rested is None
    model.rest.set()
