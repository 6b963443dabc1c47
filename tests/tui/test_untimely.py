"""Events at the wrong moment, doubled ones and unexpected errors: none ends the chat."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.events import Paste

from localspec.errors import EngineBusy, LocalspecError
from localspec.protocol.messages import Pairing
from localspec.tui import facts
from localspec.tui.command import COMMANDS, command
from localspec.tui.conversation import ChatQuestion
from localspec.tui.dialog import Confirm
from localspec.tui.screen import ChatScreen
from localspec.tui.widgets.prompt import Composer, SuggestionList, TypedToken, suggestion
from localspec.wording import CONTROLS
from tests.tui.showing import answered, conversation, show, showing


@pytest.mark.slow
async def test_a_draft_can_be_recalled_after_an_edit(still: Path) -> None:
    async with showing(conversation()) as player:
        player.put("half a")
        await player.press("ctrl+g", "escape")
        assert player.typed == "" and not player.title
        await player.press("up")
        assert player.typed == "half a"
        await player.press("ctrl+g")
        show(player, [])
        assert player.typed == "" and not player.title
        player.screen.begin("/rename ")
        assert player.typed == "/rename "
        await player.press("escape", "up")
        assert player.typed == "half a"


@pytest.mark.slow
async def test_a_defect_is_shown_and_what_was_typed_kept(
    still: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def defect(screen: ChatScreen, argument: str) -> None:
        """Fail."""
        raise ZeroDivisionError("no one thought of it")

    async def values(screen: ChatScreen) -> dict[str, str]:
        raise ZeroDivisionError("nor of this")

    monkeypatch.setitem(COMMANDS, "defect", COMMANDS["help"])
    command("defect", "[WHAT]", values=values)(defect)
    async with showing() as player:
        player.put("/defect ")
        player.screen.query_one(Composer).move_cursor((0, 8))
        await player.settle()
        log = still / "state" / "chat.log"
        assert "nor of this" in log.read_text()
        await player.write("x")
        await player.press("enter")
        await player.settle()
        (toast,) = player.toasts
        assert toast.startswith("ZeroDivisionError: no one thought of it") and str(log) in toast
        assert "in defect" in log.read_text()
        player.screen.attempt(defect(player.screen, ""), otherwise="a question")
        await player.settle()
        assert player.typed == "a question"


@pytest.mark.slow
async def test_nothing_that_is_shown_commands_the_terminal(still: Path) -> None:
    evil = "evil\x1b]0;x\x07\u202e"
    encoded = "<https://x/%1B]52;c;ZXZpbA==%1B%5C%C2%9B> evil&#8238;&#155;\n\n- ```evil&#155;py\n  x\n  ```"
    async with showing([ChatQuestion(evil, 1), answered(f"{evil}\n\n{encoded}")]) as player:
        screen = player.screen
        screen.show_error(LocalspecError(f"{evil}\n", evil))
        player.chat.pairing = Pairing(evil, evil, "auto", "llama.cpp", "")
        screen.post_message(facts.Changed())
        screen.query_one(SuggestionList).show(TypedToken(0, "@"), [suggestion(evil, evil)], eager=True)
        await player.settle()
        assert sum("evil" in line for line in player.lines()) >= 6
        assert not [line for line in player.lines() if CONTROLS.search(line)]
        assert player.toasts == ["evil\ufffd]0;x\ufffd\ufffd\ufffd evil\ufffd]0;x\ufffd\ufffd"]
        player.put("")
        player.app.post_message(Paste(f"{evil}\r\na\rb\n\tc"))
        await player.until(lambda: bool(player.typed), "it is pasted")
        assert player.typed == "evil]0;x\na\nb\n\tc"


async def test_a_chat_has_one_turn_at_a_time(still: Path) -> None:
    async with showing() as player:
        player.chat.answering = True
        with pytest.raises(EngineBusy):
            await player.screen.answer(player.chat.send("?"))


@pytest.mark.slow
async def test_a_private_chat_is_not_left_unasked(still: Path) -> None:
    async with showing(conversation(), private=True) as player:
        for key in ("n", "y"):
            player.screen.action_run("quit")
            await player.until(lambda: isinstance(player.app.screen, Confirm), "it is asked")
            player.screen.action_run("quit")
            await player.press(key)
            await player.settle()
            assert player.app._exit is (key == "y")
