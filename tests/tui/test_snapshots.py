"""How every screen looks, wide and narrow. Anew: ``pytest tests/tui/test_snapshots.py --snapshot-update``."""

from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.image import SVGImageSnapshotExtension
from textual.widgets._toast import Toast

from localspec.errors import LocalspecError
from localspec.tui import facts
from localspec.tui.conversation import Answer, Question, Said
from tests.tui.pictures import conversation, growing, picture, showing
from tests.waiting import run

WIDE = (100, 30)
NARROW = (60, 20)
SIZES = pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])


@pytest.fixture
def drawn(snapshot: SnapshotAssertion, still: Path) -> SnapshotAssertion:
    """The picture that was drawn before."""
    return snapshot.use_extension(SVGImageSnapshotExtension)


@SIZES
def test_a_conversation(drawn: SnapshotAssertion, size: tuple[int, int]) -> None:
    async def test() -> None:
        async with showing(conversation(), size=size) as player:
            assert await picture(player) == drawn

    run(test())


@SIZES
def test_sources_and_the_pulse(drawn: SnapshotAssertion, size: tuple[int, int]) -> None:
    async def test() -> None:
        async with showing(conversation(), size=size) as player:
            await player.press("ctrl+t")
            assert await picture(player) == drawn

    run(test())


@SIZES
def test_help(drawn: SnapshotAssertion, size: tuple[int, int]) -> None:
    async def test() -> None:
        async with showing(conversation(), size=size) as player:
            await player.press("f1")
            assert await picture(player) == drawn

    run(test())


@SIZES
def test_the_palette(drawn: SnapshotAssertion, size: tuple[int, int]) -> None:
    async def test() -> None:
        async with showing(conversation(), size=size) as player:
            await player.search("co")
            assert await picture(player) == drawn

    run(test())


@SIZES
def test_a_toast(drawn: SnapshotAssertion, size: tuple[int, int]) -> None:
    error = LocalspecError("the model stdlib-60m is not on this disk", "See `localspec models list`.")

    async def test() -> None:
        async with showing(conversation(), size=size) as player:
            player.screen.tell(error)
            await player.until(lambda: bool(player.app.screen.query(Toast)), "a toast is shown")
            assert await picture(player) == drawn

    run(test())


def test_a_message_is_chosen(drawn: SnapshotAssertion) -> None:
    async def test() -> None:
        async with showing(conversation(), size=WIDE) as player:
            await player.press("alt+up", "s")
            assert await picture(player) == drawn

    run(test())


def test_a_prompt_is_read(drawn: SnapshotAssertion) -> None:
    answer = Answer(status="streaming", waiting="reading the prompt 43%")

    async def test() -> None:
        async with showing([*conversation(), Question("And what of tabs?"), answer], size=WIDE) as player:
            player.screen.post_message(facts.Working("reading the prompt", 0.43))
            assert await picture(player) == drawn

    run(test())


def test_an_answer_grows_in_a_private_chat(drawn: SnapshotAssertion) -> None:
    said: list[Said] = [Question("Count."), growing("One, two, three", "draft 5 1")]

    async def test() -> None:
        async with showing(said, size=WIDE, private=True) as player:
            await player.press("slash", "c", "o")
            assert await picture(player) == drawn

    run(test())


def test_a_light_theme(drawn: SnapshotAssertion) -> None:
    async def test() -> None:
        async with showing(conversation(), size=WIDE) as player:
            player.app.theme = "textual-light"
            await player.press("ctrl+t")
            assert await picture(player) == drawn

    run(test())


@SIZES
def test_no_colour(drawn: SnapshotAssertion, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def test() -> None:
        async with showing(conversation(), size=size) as player:
            await player.press("ctrl+t")
            assert await picture(player) == drawn

    run(test())


def test_a_picture_fetches_nothing() -> None:
    """A font from elsewhere would tell who looks."""
    drawn = list(Path(__file__).parent.rglob("*.svg"))
    assert drawn and not any("url(http" in path.read_text("utf-8") for path in drawn)
