"""Pictures of screens, wide and narrow. Anew: ``pytest tests/tui/test_snapshots.py --snapshot-update``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.image import SVGImageSnapshotExtension
from textual.widgets._toast import Toast

from localspec.errors import LocalspecError
from localspec.protocol.options import Options
from localspec.protocol.results import Token
from localspec.tui import facts
from localspec.tui.conversation import Answer, Question, Said
from localspec.tui.dialogs.choose import Choice, ChooseScreen
from localspec.tui.dialogs.confirm import deletion
from localspec.tui.dialogs.sampling import SamplingScreen
from localspec.tui.dialogs.session_list import SessionList
from localspec.tui.widgets.welcome import Welcome
from tests.client.conftest import own_home
from tests.tui.harness import Player, playing
from tests.tui.pictures import PAIRING, answered, conversation, growing, picture, show, showing
from tests.tui.test_models import described
from tests.waiting import run

WIDE = (100, 30)
NARROW = (60, 20)
SIZES = pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])


@pytest.fixture
def drawn(snapshot: SnapshotAssertion, still: Path) -> SnapshotAssertion:
    """The picture that was drawn before."""
    return snapshot.use_extension(SVGImageSnapshotExtension)


@pytest.mark.slow
@SIZES
def test_a_conversation(drawn: SnapshotAssertion, size: tuple[int, int]) -> None:
    async def test() -> None:
        async with showing(conversation(), size=size) as player:
            player.chat.title = "What does textwrap.dedent do with the blanks of a line?"
            player.screen.post_message(facts.Ended())
            assert await picture(player) == drawn

    run(test())


@pytest.mark.slow
@SIZES
def test_nothing_was_said_yet(drawn: SnapshotAssertion, size: tuple[int, int]) -> None:
    async def test() -> None:
        async with showing(size=size) as player:
            player.screen.query_one(Welcome).show(PAIRING, [described("bundled", store="bundled")])
            assert await picture(player) == drawn

    run(test())


@pytest.mark.slow
@SIZES
def test_sources_and_the_pulse(drawn: SnapshotAssertion, size: tuple[int, int]) -> None:
    async def test() -> None:
        async with showing(conversation(), size=size) as player:
            await player.press("ctrl+t")
            await player.settle()
            assert await picture(player) == drawn

    run(test())


@pytest.mark.slow
@SIZES
def test_help(drawn: SnapshotAssertion, size: tuple[int, int]) -> None:
    async def test() -> None:
        async with showing(conversation(), size=size) as player:
            await player.press("f1")
            await player.settle()
            assert await picture(player) == drawn

    run(test())


@pytest.mark.slow
@SIZES
def test_the_palette(drawn: SnapshotAssertion, size: tuple[int, int]) -> None:
    async def test() -> None:
        async with showing(conversation(), size=size) as player:
            await player.search("co")
            assert await picture(player) == drawn

    run(test())


@pytest.mark.slow
@SIZES
def test_a_toast(drawn: SnapshotAssertion, size: tuple[int, int]) -> None:
    error = LocalspecError("the model stdlib-60m is not on this disk", "See `localspec models list`.")

    async def test() -> None:
        async with showing(conversation(), size=size) as player:
            player.screen.show_error(error)
            await player.until(lambda: bool(player.app.screen.query(Toast)), "a toast is shown")
            assert await picture(player) == drawn

    run(test())


@pytest.mark.slow
@SIZES
def test_a_message_is_chosen(drawn: SnapshotAssertion, size: tuple[int, int]) -> None:
    async def test() -> None:
        async with showing(conversation(), size=size) as player:
            await player.press("alt+up", "s")
            assert await picture(player) == drawn

    run(test())


@pytest.mark.slow
@SIZES
def test_a_prompt_is_read(drawn: SnapshotAssertion, size: tuple[int, int]) -> None:
    answer = Answer(status="streaming", waiting="reading the prompt 43%")
    said: list[Said] = [*conversation(), Question("And what of tabs?"), answer]

    async def test() -> None:
        async with showing(said, size=size) as player:
            player.screen.post_message(facts.Working("reading the prompt", 0.43))
            assert await picture(player) == drawn

    run(test())


@pytest.mark.slow
@SIZES
def test_an_answer_grows_in_a_private_chat(drawn: SnapshotAssertion, size: tuple[int, int]) -> None:
    said: list[Said] = [Question("Count."), growing("One, two, three", "draft 5 1")]

    async def test() -> None:
        async with showing(said, size=size, private=True) as player:
            await player.press("slash", "c", "o")
            assert await picture(player) == drawn

    run(test())


@pytest.mark.slow
@SIZES
def test_one_of_several(drawn: SnapshotAssertion, size: tuple[int, int]) -> None:
    choices = [
        Choice("a", "qwen2.5-coder-7b", "7.6 B · Q4_K_M · 4.7 GB · loaded · 32768 context", current=True),
        Choice("b", "stdlib-6m", "6.3 M · F16 · 12.6 MB · 2048 context"),
        Choice("c", "llama-3.2-1b", "1.2 B · 2.5 GB", problem="its file is cut off"),
    ]

    async def test() -> None:
        async with showing(conversation(), size=size) as player:
            await player.app.push_screen(ChooseScreen("Model", choices))
            assert await picture(player) == drawn

    run(test())


@pytest.mark.slow
@SIZES
def test_sampling(drawn: SnapshotAssertion, size: tuple[int, int]) -> None:
    options, held = Options(temperature=0.2, stop=("END",)), Options(temperature=0.8, top_k=40)

    async def test() -> None:
        async with showing(conversation(), size=size) as player:
            await player.app.push_screen(SamplingScreen(options, held))
            assert await picture(player) == drawn

    run(test())


async def a_model_is_loaded(player: Player) -> None:
    player.screen.post_message(facts.Working("loading the target model", 0.62))


async def nothing_is_found(player: Player) -> None:
    await player.app.push_screen(ChooseScreen("Model", [Choice("a", "stdlib-6m", "6.3 M · F16")]))
    await player.press("z", "z")


async def an_answer_has_failed(player: Player) -> None:
    error = LocalspecError("the model needs 9.1 GB, and 7.4 GB are free", "Choose a smaller one with /model.")
    answer = growing("One, two,", "draft 3 1")
    answer.status, answer.error = "failed", error
    show(player, [Question("Count."), answer])


async def a_long_question_is_folded(player: Player) -> None:
    lines = "\n".join(f"line {number} of what was pasted" for number in range(60))
    show(player, [Question(f"What is this?\n{lines}"), answered("Lines.", "draft 2 1")])


async def a_question_is_edited(player: Player) -> None:
    await player.press("ctrl+g")


async def more_came_below(player: Player) -> None:
    answer = growing("- and another line\n" * 30)
    show(player, [*conversation(), Question("And what of tabs?"), answer])
    await player.press("pageup")
    answer.grow("- the last\n", [Token(0, "target", 11)])
    answer.first = answer.last
    player.screen.post_message(facts.Grown())


MOMENTS = (
    a_model_is_loaded,
    nothing_is_found,
    an_answer_has_failed,
    a_long_question_is_folded,
    a_question_is_edited,
    more_came_below,
)


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.__name__)
def test_a_moment(drawn: SnapshotAssertion, moment: Callable[[Player], Awaitable[None]]) -> None:
    async def test() -> None:
        async with showing(conversation(), size=WIDE) as player:
            await moment(player)
            assert await picture(player) == drawn

    run(test())


@pytest.mark.slow
@SIZES
def test_a_deletion(drawn: SnapshotAssertion, size: tuple[int, int]) -> None:
    async def test() -> None:
        async with showing(conversation(), size=size) as player:
            await player.app.push_screen(deletion("What does textwrap.dedent do?"))
            assert await picture(player) == drawn

    run(test())


@SIZES
@pytest.mark.slow
def test_the_list_of_chats(snapshot: SnapshotAssertion, size: tuple[int, int]) -> None:
    async def test() -> None:
        async with playing(size=size) as player:
            for question in ("What does os.path.join do?", "What does textwrap.dedent do?"):
                await player.chat.send(question)
                player.screen.action_run("new")
                await player.settle()
            await player.press("ctrl+s")
            await player.until(lambda: player.app.screen.query_one(SessionList).option_count == 2, "both")
            assert await picture(player) == snapshot.use_extension(SVGImageSnapshotExtension)

    with own_home():  # the other picture has chats of its own
        run(test())


@pytest.mark.slow
def test_a_light_theme(drawn: SnapshotAssertion) -> None:
    async def test() -> None:
        async with showing(conversation(), size=WIDE) as player:
            player.app.theme = "textual-light"
            await player.press("ctrl+t")
            await player.settle()
            assert await picture(player) == drawn

    run(test())


@pytest.mark.slow
@SIZES
def test_no_colour(drawn: SnapshotAssertion, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def test() -> None:
        async with showing(conversation(), size=size) as player:
            await player.press("ctrl+t")
            await player.settle()
            assert await picture(player) == drawn

    run(test())


def test_a_picture_fetches_nothing() -> None:
    """A font from the network would reveal the reader."""
    drawn = list(Path(__file__).parent.rglob("*.svg"))
    assert drawn and not any("url(http" in path.read_text("utf-8") for path in drawn)
