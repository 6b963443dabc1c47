"""Every key in the prompt: what is typed, what is suggested, what was sent before."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.events import Paste

from localspec.errors import EngineError
from localspec.tui.command import COMMANDS
from localspec.tui.dialog import Confirm
from localspec.tui.widgets.prompt import LONGEST_LINE, LONGEST_PASTE, Composer, PromptHistory, SuggestionList
from localspec.tui.widgets.transcript import Transcript
from tests.memory.hostile_repository import repository
from tests.tui.harness import ENDLESS, Player, playing
from tests.tui.showing import showing


def suggested(player: Player) -> list[str]:
    return player.screen.query_one(SuggestionList).texts


def composer(player: Player) -> Composer:
    return player.screen.query_one(Composer)


@pytest.mark.slow
async def test_commands_are_suggested(player: Player) -> None:
    await player.write("/")
    assert suggested(player) == [f"/{name} " for name in sorted(COMMANDS)]
    await player.write("mo")
    assert suggested(player) == ["/model "] and "Choose the model" in player.seen()
    await player.press("enter")
    assert player.typed == "/model " and not player.toasts
    await player.until(lambda: "/model stdlib-1m" in suggested(player), "models are suggested")
    await player.write("stdlib-6")
    await player.until(lambda: suggested(player) == ["/model stdlib-6m"], "one is left")
    await player.press("tab")
    assert player.typed == "/model stdlib-6m"
    composer(player).text = "/etc/hosts is a file"
    await player.until(lambda: not suggested(player), "it is no command")


@pytest.mark.slow
async def test_values_are_suggested_and_taken_with_the_arrows(player: Player) -> None:
    composer(player).text = "/model "
    composer(player).move_cursor((0, 7))
    await player.until(lambda: "/model stdlib-1m" in suggested(player), "models are suggested")
    second = suggested(player)[1]
    await player.press("down", "down", "up", "down")
    await player.press("enter")
    assert player.typed == second
    composer(player).text = ""
    await player.write("/set exactn")
    await player.until(lambda: suggested(player) == ["/set exactness "], "its name is suggested")


@pytest.mark.slow
async def test_a_suggestion_is_declined(player: Player) -> None:
    await player.write("/q")
    assert suggested(player) == ["/quit "]
    await player.press("escape", "u")
    assert not suggested(player) and player.typed == "/qu"
    await player.press("backspace", "backspace", "backspace")
    await player.write("/q")
    assert suggested(player) == ["/quit "]


@pytest.mark.slow
async def test_a_suggestion_is_clicked(player: Player) -> None:
    await player.write("/co")
    assert suggested(player) == ["/code ", "/colours ", "/copy "]
    await player._pilot.click(SuggestionList, offset=(4, 2))
    assert player.typed == "/copy " and composer(player).has_focus


@pytest.mark.slow
async def test_files_are_suggested(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("folder/one.txt", "a two.txt", "ignored.txt"):
        (tmp_path / name).write_text("x")
    (repository(tmp_path) / ".gitignore").write_text("ignored.txt\n")
    monkeypatch.chdir(tmp_path)
    async with playing() as player:
        await player.write("See @")
        files = ["@.gitignore ", '@"a two.txt" ', "@folder/one.txt "]
        await player.until(lambda: suggested(player) == files, "files are suggested")
        await player.write("r/one")
        await player.until(lambda: suggested(player) == ["@folder/one.txt "], "one is left")
        await player.press("enter")
        assert player.typed == "See @folder/one.txt "
        await player.write("@two")
        await player.until(lambda: suggested(player) == ['@"a two.txt" '], "the other is suggested")
        await player.press("tab")
        assert player.typed == 'See @folder/one.txt @"a two.txt" '
        await player.write("me@one")
        await player.settle()
        assert not suggested(player)


@pytest.mark.slow
async def test_lines_are_gone_through_before_the_history(player: Player) -> None:
    await player.do("/colours")
    await player.write("one")
    await player.press("shift+enter")
    await player.write("two")
    await player.press("up")
    assert player.typed == "one\ntwo" and composer(player).cursor_location[0] == 0
    await player.press("up")
    assert player.typed == "/colours"
    await player.press("down")
    assert player.typed == "one\ntwo"
    composer(player).text = "word " * 60  # one line, wrapped
    composer(player).move_cursor(composer(player).document.end)
    await player.press("up")
    assert player.typed == "word " * 60 and composer(player).cursor_location[1] < 300


async def test_a_tall_paste_is_undone_and_redone_and_a_cleared_one_comes_back(still: Path) -> None:
    pasted = "line @home/x /copy\n" * 40
    whole = f"Look: {pasted}"
    async with showing() as player:
        await player.write("Look: ")
        player.app.post_message(Paste(pasted))
        await player.until(lambda: player.typed == whole, "it is pasted")
        assert composer(player).size.height <= 10 and not suggested(player)
        for key, typed in (("ctrl+underscore", "Look: "), ("ctrl+y", whole)):
            await player.press(key)
            assert player.typed == typed
        await player.press("ctrl+c")
        assert player.typed == "" and not player.toasts
        await player.press("ctrl+underscore")
        assert player.typed == whole
        await player.press("ctrl+c", "ctrl+c")
        assert player.toasts == ["Ctrl-Q leaves the chat."] and not player.app._exit


@pytest.mark.slow
@pytest.mark.parametrize("text", ["x" * (LONGEST_LINE + 1), "line\n" * LONGEST_PASTE])
async def test_what_is_too_long_to_be_edited_is_not_pasted(player: Player, text: str) -> None:
    await player.write("a")
    player.app.post_message(Paste(text))
    await player.until(lambda: bool(player.toasts), "it is shown")
    assert "attach that: @PATH" in player.toasts[0] and player.typed == "a"


@pytest.mark.slow
async def test_a_message_that_is_not_taken_is_given_back(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff")
    monkeypatch.chdir(tmp_path)
    async with playing() as player:
        await player.write("See @bytes")
        await player.until(lambda: suggested(player) == ["@bytes "], "it is suggested")
        await player.press("escape", "enter")
        await player.until(lambda: bool(player.toasts), "it is shown")
        assert "bytes is not UTF-8 text" in player.toasts[0]
        assert player.typed == "See @bytes" and not player.chat.said
        await player.press("up", "down")
        assert player.typed == "See @bytes"


@pytest.mark.slow
async def test_an_edit_that_comes_too_early_stays_one(home: Path) -> None:
    async with playing(ENDLESS) as player:
        await player.ask_on("Hi")
        await player.press("ctrl+g", "x", "enter")
        await player.until(lambda: player.title == "Waits: Hix", "it waits")
        before = player.chat.answer
        player.chat.stop()
        await player.until(lambda: player.title.startswith("Edits the question"), "it has stopped")
        assert player.typed == "Hix"
        await player.press("enter")
        await player.until(lambda: player.chat.answer is not before, "it is edited")
        assert player.chat.said[0].text == "Hix" and len(player.chat.said) == 2
        player.chat.stop()
        await player.settle()


async def test_a_message_waits_for_the_end_of_the_answer(home: Path) -> None:
    async with playing(ENDLESS) as player:
        first = await player.ask_on("Hi")
        for text, title in (("And?", "And?"), (f"Then\n{'so' * 20}", f"And? Then {'so' * 15}…")):
            await player.send(text)
            await player.until(lambda title=title: player.title == f"Waits: {title}", "it waits")  # type: ignore[misc]
            assert not player.typed
        await player.press("up")
        assert player.typed == f"And?\n\nThen\n{'so' * 20}" and not player.title and first.growing
        await player.press("enter", "a", "ctrl+q")
        await player.until(lambda: isinstance(player.app.screen, Confirm), "it is not lost by leaving")
        await player.press("n", "escape")
        await player.until(lambda: not player.title, "the answer has ended")
        assert player.typed == f"And?\n\nThen\n{'so' * 20}\n\na" and len(player.chat.said) == 2


@pytest.mark.parametrize("fails", [False, True])
async def test_a_message_that_waited_is_sent_though_the_answer_failed(player: Player, fails: bool) -> None:
    turn = asyncio.Event()

    async def answer() -> None:
        await turn.wait()
        player.chat.answering = False
        if fails:
            raise EngineError("the worker has ended")

    player.chat.answering = True
    player.screen.attempt(answer())
    await player.send("And?")
    await player.press("n", "o")
    await player.until(lambda: player.title == "Waits: And?", "it waits")
    turn.set()
    await player.until(lambda: bool(player.chat.session), "it is sent")
    await player.settle()
    assert player.typed == "no" and not player.title and player.chat.said[0].text == "And?"


@pytest.mark.slow
async def test_tab_goes_to_the_conversation_and_a_blank_is_not_sent(player: Player) -> None:
    await player.press("space", "enter")
    assert not player.chat.said
    await player.say("Hi")
    await player.press("tab")
    assert not composer(player).has_focus and player.screen.query_one(Transcript).has_focus


def test_a_history_keeps_what_was_typed_and_changed() -> None:
    history = PromptHistory()
    assert history.move(-1, "x") is None
    history.add("one")
    history.add("two")
    history.add("two")
    assert history.move(1, "") is None
    assert history.move(-1, "draft") == "two"
    assert history.move(-1, "two, changed") == "one" and history.move(-1, "one") is None
    assert history.move(1, "one") == "two, changed" and history.move(1, "two, changed") == "draft"
    history.add("three")
    assert history.move(-1, "") == "three" and history.move(-1, "three") == "draft"
