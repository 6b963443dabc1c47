"""Tools in the chat: asked for, shown, stopped, stored; an echoing daemon makes the calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.events import Paste
from textual.widgets import Button

from localspec.agent import loop
from localspec.agent.loop import servers_in
from localspec.tui import dialog
from localspec.tui.conversation import ChatAnswer, ChatCall, ChatQuestion
from localspec.tui.dialog import Permission
from localspec.tui.export import markdown
from tests.agent.test_agent import FUNCTIONS, start
from tests.client.conftest import own_home
from tests.tui.harness import Player, playing
from tests.waiting import run

LONG = '"\\x1b[2J" + "\\n".join(map(str, range(40)))'


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    with own_home() as path:
        run(start())
        yield path


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(dialog, "PAUSE_S", 0.01)
    monkeypatch.setattr(dialog, "ALONE_S", 0.01)
    path = tmp_path / "functions.py"
    path.write_text(FUNCTIONS.replace('f"\\x1b[2Jrain in {city}"', LONG))
    return path


async def asked(player: Player, call: str) -> None:
    await player.until(
        lambda: isinstance(player.app.screen, Permission) and call in player.seen(), f"{call} is asked for"
    )
    await rested(player)


async def rested(player: Player) -> None:
    asking = player.app.screen
    assert isinstance(asking, Permission)
    await player.until(lambda: asking.pause is None, "the pause is over")


async def test_calls_are_asked_for_and_shown_and_stay_in_the_chat(home: Path, functions: Path) -> None:
    async with playing() as player:
        await player.do(f"/tools {functions}")
        assert any("functions.py: weather, time, total" in toast for toast in player.toasts)
        await player.send("call")
        await asked(player, 'weather {"city": "Oslo"}')
        assert player.chat.answering and player.seen().count("weather {") == 1
        assert "asking before weather …" in player.seen()
        await player.press("a")
        await asked(player, "time {}")
        await player.press("n")
        await player.answered(None)
        *_, time, answer = player.chat.said
        kinds = [type(said) for said in player.chat.said]
        assert kinds == [ChatQuestion, ChatAnswer, ChatCall, ChatCall, ChatAnswer]
        assert time.text == answer.text.strip() == "The user refused this call."
        assert all(said.id for said in player.chat.said)
        shown = "\n".join(player.lines())
        assert "\n  refused" in shown and "The user refused" not in shown.partition("refused")[0]
        assert shown.count("weather") == 1 and "… 37 more lines" in shown and "\x1b" not in shown
        await player.press("alt+up", "k", "k", "o", "pagedown")
        assert "more lines" not in "\n".join(player.lines())
        assert "## Call of weather" in markdown("", None, None, player.chat.said)
        await player.press("escape")
        await player.do("/tools")
        assert any("weather (allowed), time," in toast for toast in player.toasts)
        await player.do("/tools off")
        assert player.app.tools.box.tools == ()
        session = player.chat.session
    async with playing(session=session) as player:
        stored = [(said.role, said.text) for said in player.chat.said]
        assert stored[2] == ("tool", "\ufffd[2J0\n" + "\n".join(map(str, range(1, 40))))
        assert stored[3:] == [("tool", time.text), ("assistant", answer.text)]


async def test_words_take_the_place_of_a_call_without_an_end(
    home: Path, functions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "TAIL", 10)
    monkeypatch.setattr(loop, "LONGEST_CALL", 10)
    async with playing() as player:
        await player.screen.open_tools(servers_in(functions))
        await player.send("call")
        await player.answered(None)
        assert [said.role for said in player.chat.said] == ["user", "assistant"]
        assert any("its arguments did not end in" in toast for toast in player.toasts)
        assert player.chat.said[-1].text and not player.chat.answering


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
async def test_a_call_is_stopped_with_its_answer(home: Path, functions: Path, key: str) -> None:
    begun = functions.with_name("begun")
    waits = f"open({str(begun)!r}, 'w').close(); clock.sleep(1000)\n    return "
    functions.write_text(FUNCTIONS.replace("    return ", f"    {waits}"))
    async with playing() as player:
        await player.screen.open_tools(servers_in(functions))
        await player.send("call")
        await asked(player, "weather")
        await player.press("y")
        await player.until(begun.exists, "the call has begun")
        assert "calling weather …" in player.seen()
        await player.press(key)
        await player.answered(None)
        texts = [said.text for said in player.chat.said if isinstance(said, ChatCall)]
        assert texts == ["error: the user cancelled this call", "The user refused this call."]
        answer = player.chat.answer
        assert answer is not None and answer.status in ("cancelled", "complete")  # it is short


async def test_a_text_that_is_typed_is_no_consent(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def pause() -> None:
        """Press a key without an effect, and let the pause behind it end; later ones do not."""
        monkeypatch.setattr(dialog, "PAUSE_S", 0.01)
        await player.press("f9")
        await rested(player)
        monkeypatch.setattr(dialog, "PAUSE_S", 1000.0)

    monkeypatch.setattr(dialog, "ALONE_S", 1000.0)
    async with playing() as player:
        asking, answers = Permission("delete_file {}", player.screen.prompt), list[object]()
        player.app.push_screen(asking, answers.append)
        await player.press("w", "y")
        assert "keys answer in a moment" in "\n".join(player.lines())
        await pause()
        assert "keys answer in a moment" not in "\n".join(player.lines())
        await player.press("y", "backspace", "enter")
        assert player.typed == "wy"
        await player.press("backspace", "backspace")
        await pause()
        await player.write("and")
        player.app.post_message(Paste(" so"))
        await player.until(lambda: player.typed == "and so", "the text is pasted")
        await pause()
        await player.press("up", "enter")
        assert asking.is_active and "typed into the prompt" in "\n".join(player.lines())
        await player.press("right", "n")
        assert asking.query_one("#no", Button).has_focus
        await pause()
        await player.press("enter")
        assert asking.is_active, "it may be meant for the text"
        await player.press("escape")
        await player.until(lambda: asking not in player.app.screen_stack, "it is answered")
        await player.settle()
        assert answers == ["no"]
        assert player.typed == "and son"


async def test_the_answers_beyond_no_are_once_and_then_always(player: Player, functions: Path) -> None:
    for keys, answer in ((("left",), "yes"), (("right",), "no"), (("left", "left", "left"), "always")):
        asking, answers = Permission("delete_file {}", player.screen.prompt), list[object]()
        player.app.push_screen(asking, answers.append)
        await player.until(lambda asking=asking: asking.is_active, "it is asked")  # type: ignore[misc]
        await player.press(*keys)
        await rested(player)
        await player.press("enter")
        await player.until(lambda answers=answers: bool(answers), "it is answered")  # type: ignore[misc]
        assert answers == [answer]


async def test_a_long_call_is_read_by_pages_above_the_answers(player: Player) -> None:
    player.app.push_screen(Permission("\n".join(f"line {n}" for n in range(60)), player.screen.prompt))
    await player.until(lambda: "line 12" in player.seen(), "it begins")
    assert "Once (y)" in player.seen()
    assert "469 characters: PgDn" in "\n".join(player.lines())
    await player.press(*["pagedown"] * 6)
    await player.until(lambda: "line 59" in player.seen(), "it ends")
    await player.press(*["pageup"] * 6)
    await player.until(lambda: "line 0" in player.seen(), "it begins again")
    await player.resize(20, 9)
    shown = "\n".join(player.lines())
    buttons = ("Once (y)", "Always (a)", "No (Esc)")
    assert "line 0" in shown and "line 3" in shown and all(button in shown for button in buttons)
