"""Typed text reaches its target and is never lost; no untimely event and no error ends the chat."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.events import Key, Paste

from localspec.client import Client, connect
from localspec.errors import EngineBusy, LocalspecError
from localspec.protocol.messages import ChatSend, Pairing
from localspec.tui import facts
from localspec.tui.command import COMMANDS, command
from localspec.tui.conversation import ChatQuestion
from localspec.tui.dialog import Confirm
from localspec.tui.screen import ChatScreen
from localspec.tui.widgets.prompt import Composer, Prompt, SuggestionList, TypedToken, suggestion
from localspec.tui.widgets.transcript import Transcript
from localspec.wording import CONTROLS
from tests.tui.harness import ENDLESS, GREEDY, Player, playing
from tests.tui.showing import answered, conversation, show, showing
from tests.waiting import run

QUESTION = "What does os.path.join do?"


@pytest.mark.slow
async def test_what_is_typed_after_a_click_in_the_conversation_goes_to_the_prompt(viewer: Player) -> None:
    await viewer.click(Transcript, offset=(5, 1))
    await viewer.write("ok really")
    assert viewer.typed == "ok really"
    await viewer.press("alt+up")
    assert viewer.transcript.has_focus
    await viewer.press("x")
    assert viewer.typed == "ok reallyx" and not viewer.transcript.has_focus
    await viewer.press("alt+up")
    viewer.app.post_message(Paste("k\n"))
    await viewer.until(lambda: viewer.typed == "ok reallyxk\n", "it is pasted")


async def test_keys_that_come_at_once_are_taken_in_their_order(still: Path) -> None:
    async with showing() as player:
        for key in ("a", "b", "c", "backspace", "d", "left", "e", "end", "f", "home", "delete", "slash"):
            character = "/" if key == "slash" else key if len(key) == 1 else None
            player.app.post_message(Key(key, character))
        await player.until(lambda: len(player.typed) == 5, "it is typed")
        assert player.typed == "/bedf"


async def test_a_command_leaves_the_edit_in_whose_place_it_was_typed(viewer: Player) -> None:
    viewer.put("draft")
    await viewer.press("ctrl+g")
    viewer.put("")
    viewer.screen.post_message(Prompt.Sent("/colours"))
    await viewer.settle()
    assert viewer.transcript.raw and not viewer.title and viewer.typed == ""


@pytest.mark.slow
async def test_what_is_typed_ahead_is_said_in_the_chat_that_is_gone_on_with(other: Client) -> None:
    session = (await other.open(options=GREEDY).result()).session
    await other.chat(ChatSend(session=session, content=QUESTION)).result()
    async with playing(session=session, settled=False) as player:
        await player.send("And split?")
        await player.until(lambda: len(player.chat.said) == 4, "it is said")
        await player.settle()
        assert player.chat.session == session and len(await other.sessions()) == 1


@pytest.mark.slow
async def test_what_is_said_before_the_last_turn_is_stored_is_shown_and_can_be_stopped(
    player: Player,
) -> None:
    await player.say(QUESTION)
    await player.chat._turn.acquire()
    for _ in range(2):
        await player.send("And split?")
        await player.until(lambda: player.chat.answering, "it waits")
    await player.until(lambda: bool(player.title), "the second waits")
    player.put("")
    await player.press("escape")
    player.chat._turn.release()
    await player.settle()
    assert player.typed == "And split?\n\nAnd split?" and not player.chat.answering
    await player.press("enter")
    await player.until(lambda: len(player.chat.said) == 4, "it is said")
    await player.settle()


@pytest.mark.slow
async def test_what_was_said_in_private_is_not_given_back_to_another_chat(home: Path) -> None:
    async with playing(private=True) as player:
        await player.say(QUESTION)
        link, private = player.app.link, player.chat
        await link._connecting.acquire()
        await player.send("my secret")
        await player.until(lambda: private.answering, "it waits")
        player.screen.show(player.app.new_chat())
        private.stop()
        link._connecting.release()
        await player.app.discard(private)
        await player.settle()
        assert player.typed == ""


@pytest.mark.slow
async def test_a_turn_that_begins_while_its_chat_is_opened_again_is_seen(home: Path) -> None:
    async with playing(ENDLESS) as player:
        await player.ask_on(QUESTION)
        await player.press("escape")
        await player.settle()
        chat, session = player.chat, player.chat.session
        opening = asyncio.ensure_future(chat.restore(session or ""))
        await player.send("And split?")
        await opening
        await player.until(lambda: bool(chat.answer and chat.answer.growing), "it is answered")
        assert len(chat.said) == 4
        await player.press("escape")
        await player.settle()
        assert len(chat.said) == 4


@pytest.mark.slow
async def test_another_programs_turn_leaves_what_is_looked_at(home: Path) -> None:
    async with playing(size=(60, 16)) as player, await connect() as other:
        for _ in range(4):
            await player.say("Hi")
        await player.press("alt+up", "up", "up", "up")
        transcript, chosen = player.transcript, player.transcript.chosen
        assert chosen is not None and transcript._following is False
        y = transcript.scroll_offset.y
        await other.chat(ChatSend(session=player.chat.session or "", content=QUESTION)).result()
        await player.until(lambda: len(player.chat.said) == 10, "it is seen")
        await player.settle()
        assert transcript.chosen is chosen and transcript.scroll_offset.y == y


@pytest.mark.parametrize("where", ["in a message", "in a worker"])
def test_a_defect_that_ends_the_chat_is_shown_with_what_was_typed(still: Path, where: str) -> None:
    async def defect() -> None:
        1 / 0  # noqa: B018, it is the defect

    async def test() -> None:
        async with showing() as player:
            player.put("half a thought")
            if where == "in a worker":
                player.screen.run_worker(defect())
            else:
                player.app.call_later(defect)
            await asyncio.wait_for(player.app._exception_event.wait(), 30)
            console = player.app.console
            with console.capture() as capture:
                console.print(*player.app._exit_renderables)
            shown = capture.get()
            assert "localspec: ZeroDivisionError" in shown and "half a thought" in shown
            assert "Traceback" not in shown and "WorkerFailed" not in shown

    with pytest.raises(ZeroDivisionError):
        run(test())
    assert "1 / 0" in (still / "state" / "chat.log").read_text()


@pytest.mark.slow
async def test_a_draft_can_be_recalled_after_an_edit(viewer: Player) -> None:
    viewer.put("half a")
    await viewer.press("ctrl+g", "escape")
    assert viewer.typed == "" and not viewer.title
    await viewer.press("up")
    assert viewer.typed == "half a"
    await viewer.press("ctrl+g")
    show(viewer, [])
    assert viewer.typed == "" and not viewer.title
    viewer.screen.begin("/rename ")
    assert viewer.typed == "/rename "
    await viewer.press("escape", "up")
    assert viewer.typed == "half a"


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
