"""Events at the wrong moment, doubled ones and unexpected errors: none ends the chat."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.events import Paste

from localspec.errors import EngineBusy, LocalspecError
from localspec.protocol.sessions import Pairing
from localspec.tui import facts
from localspec.tui.actions import ChatActions
from localspec.tui.chat import Chat
from localspec.tui.commands import models as models_commands
from localspec.tui.commands.command import COMMANDS
from localspec.tui.conversation import Question
from localspec.tui.dialogs.choose import Choice, ChooseScreen
from localspec.tui.dialogs.confirm import Confirm
from localspec.tui.screens.chat import ChatScreen
from localspec.tui.screens.help import HelpScreen
from localspec.tui.widgets.progress import Progress
from localspec.tui.widgets.prompt import Composer, Prompt
from localspec.tui.widgets.status import Status
from localspec.tui.widgets.suggestions import Suggestion, Suggestions, Token
from localspec.tui.widgets.transcript import Transcript
from localspec.wording import CONTROLS
from tests.tui.harness import Player
from tests.tui.showing import PAIRING, answered, conversation, growing, show, showing
from tests.tui.test_models import described


def write(player: Player, text: str) -> None:
    player.screen.query_one(Composer).text = text


def title(player: Player) -> str:
    return player.screen.query_one(Prompt).title


@pytest.mark.slow
async def test_an_edit_of_a_question_that_is_gone_is_left_and_its_text_kept(still: Path) -> None:
    async with showing([*conversation(), Question("And then?", 3), answered()]) as player:
        write(player, "draft")
        await player.press("ctrl+g", "x")
        assert player.typed == "And then?x" and title(player)
        player.chat.said = player.chat.said[:2]
        player.screen.post_message(facts.Changed())
        await player.settle()
        assert player.typed == "And then?x" and not title(player)
        await player.press("up")
        assert player.typed == "draft"


@pytest.mark.slow
async def test_what_is_wanted_of_a_message_that_is_gone_is_refused(still: Path) -> None:
    async with showing(conversation()) as player:
        screen, (question, gone) = player.screen, player.chat.said
        player.chat.said = [question, answered()]
        screen.post_message(Transcript.Asked("edit", gone))
        await player.settle()
        assert player.toasts == ["this message is no longer in the chat Choose one that is shown."]
        player.chat.said = [gone]
        screen.post_message(Transcript.Asked("edit", gone))
        await player.settle()
        assert player.toasts[1:] == ["this chat has no question yet Send a message first."]


@pytest.mark.slow
async def test_a_draft_comes_back_after_an_edit(still: Path) -> None:
    async with showing(conversation()) as player:
        write(player, "half a")
        await player.press("ctrl+g", "ctrl+g", "escape")
        assert player.typed == "half a" and not title(player)
        await player.press("ctrl+g")
        show(player, [])
        assert player.typed == "half a" and not title(player)
        player.screen.begin("/rename ")
        assert player.typed == "/rename "
        await player.press("escape", "up")
        assert player.typed == "half a"


@pytest.mark.slow
async def test_a_defect_is_told_and_what_was_typed_kept(still: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def defect(screen: ChatActions, argument: str) -> None:
        """Fail."""
        raise ZeroDivisionError("no one thought of it")

    async def values(screen: ChatActions, typed: str) -> list[str]:
        raise ZeroDivisionError("nor of this")

    monkeypatch.setattr(COMMANDS, "_by_name", dict(COMMANDS._by_name))
    COMMANDS.command("defect", "[WHAT]", values=values)(defect)
    async with showing() as player:
        write(player, "/defect ")
        player.screen.query_one(Composer).move_cursor((0, 8))
        await player.settle()
        log = still / "state" / "chat.log"
        assert "nor of this" in log.read_text()
        await player.press("enter")
        await player.settle()
        (toast,) = player.toasts
        assert toast.startswith("ZeroDivisionError: no one thought of it") and str(log) in toast
        assert "in defect" in log.read_text()
        player.screen.attempt(defect(player.screen, ""), otherwise="a question")
        await player.settle()
        assert player.typed == "a question"


@pytest.mark.slow
async def test_a_dialog_ends_once(still: Path) -> None:
    async with showing() as player:
        chosen: list[str | None] = []
        dialog = ChooseScreen("Which?", [Choice("one", "one")])
        await player.app.push_screen(dialog, chosen.append)
        dialog.dismiss("one")
        dialog.dismiss("one")
        await dialog.action_dismiss(None)
        await player.settle()
        assert player.app.screen is player.screen and chosen == ["one"]


@pytest.mark.slow
async def test_nothing_that_is_shown_commands_the_terminal(still: Path) -> None:
    evil = "evil\x1b]0;x\x07\u202e"
    encoded = "<https://x/%1B]52;c;ZXZpbA==%1B%5C%C2%9B> evil&#8238;&#155;\n\n- ```evil&#155;py\n  x\n  ```"
    async with showing([Question(evil, 1), answered(f"{evil}\n\n{encoded}")]) as player:
        screen = player.screen
        screen.show_error(LocalspecError(f"{evil}\n", evil))
        player.chat.pairing = Pairing(evil, evil, "auto", "llama.cpp", "")
        screen.post_message(facts.Changed())
        screen.query_one(Suggestions).show(Token(0, "@"), [Suggestion(evil)], eager=True)
        await player.settle()
        assert sum("evil" in line for line in player.lines()) >= 6
        assert not [line for line in player.lines() if CONTROLS.search(line)]
        assert player.toasts == ["evil\ufffd]0;x\ufffd\ufffd\ufffd evil\ufffd]0;x\ufffd\ufffd"]
        write(player, "")
        player.app.post_message(Paste(f"{evil}\r\na\rb\n\tc"))
        await player.until(lambda: bool(player.typed), "it is pasted")
        assert player.typed == "evil]0;x\na\nb\n\tc"


@pytest.mark.slow
async def test_one_thing_is_asked_at_a_time(still: Path) -> None:
    async with showing() as player:
        screen, found = player.screen, asyncio.Event()
        screen.settled.set()

        async def models() -> ChooseScreen:
            await screen.busy("looking for models", found.wait())
            return ChooseScreen("Model", [Choice("one", "one")])

        async def choose() -> None:
            name = await screen.ask(models())
            chosen.append(name)

        chosen: list[str | None] = []
        screen.attempt(choose())
        await player.until(lambda: "looking for models …" in player.lines()[-2], "it is told")
        await player.press("f2")
        screen.attempt(choose())
        await player.until(lambda: chosen == [None], "it is not asked twice")
        found.set()
        await player.until(lambda: isinstance(player.app.screen, ChooseScreen), "it is asked")
        assert not any("looking for models" in line for line in player.lines())
        screen.action_run("set")
        await player.press("enter")
        await player.settle()
        assert chosen == [None, "one"] and player.app.screen is screen
        found.clear()
        screen.attempt(choose())
        await player.press("f1")
        found.set()
        await player.until(lambda: len(chosen) == 3, "help is in front")
        assert isinstance(player.app.screen, HelpScreen) and chosen[2] is None


async def test_an_answer_elsewhere_is_not_in_the_way(still: Path) -> None:
    async with showing([Question("?", 1), growing()]) as player:
        taken: list[str] = []
        player.screen.settled.set()

        async def turn() -> None:
            taken.append("there")

        await player.screen.answer(player.app.new_chat(), turn())
        assert taken == ["there"]
        with pytest.raises(EngineBusy):
            await player.screen.answer(player.chat, turn())


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


@pytest.mark.slow
async def test_models_are_looked_for_once_and_errors_are_not_told(
    still: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [LocalspecError("no daemon"), [described("bundled", store="bundled")], LocalspecError("again")]

    async def models(chat: Chat) -> object:
        each = found.pop(0)
        if isinstance(each, LocalspecError):
            raise each
        return each

    monkeypatch.setattr(Chat, "models", models)
    async with showing() as player:
        for is_known in (False, True, True):
            player.screen.post_message(facts.Paired(PAIRING))
            await player.settle()
            seen = "\n".join(player.lines())
            assert "stdlib-6m answers" in seen and ("The only model" in seen) is is_known
        assert len(found) == 1 and not player.toasts


@pytest.mark.slow
async def test_models_are_asked_for_once_while_a_name_is_typed(
    still: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[Chat]()

    async def models(chat: Chat) -> object:
        asked.append(chat)
        return [described("one", store="bundled"), described("other", store="bundled")]

    monkeypatch.setattr(Chat, "models", models)
    async with showing(conversation()) as player:
        suggestions = player.screen.query_one(Suggestions)
        for typed, names in (("/model o", 2), ("ne", 1)):
            await player.write(typed)
            await player.until(lambda n=names: suggestions.option_count == n, "they are suggested")  # type: ignore[misc]
        player.screen.begin("/draft o")
        await player.until(lambda: suggestions.option_count == 2, "they are suggested")
        assert len(asked) == 1
        monkeypatch.setattr(models_commands, "FRESH_S", -1.0)
        await player.write("n")
        await player.until(lambda: suggestions.option_count == 1, "it is suggested")
        assert len(asked) == 2


@pytest.mark.slow
async def test_a_daemon_that_is_not_started_for_a_suggestion_is_not_told_of_for_ever(
    still: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (still / "config").mkdir()
    (still / "config" / "config.toml").write_text("nonsense = 1\n")

    async def endless(screen: ChatActions, typed: str) -> list[str]:
        assert isinstance(screen, ChatScreen)
        screen.on_working(facts.Working("starting the daemon", None))
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(COMMANDS, "_by_name", dict(COMMANDS._by_name))
    COMMANDS.command("endless", "[WHAT]", values=endless)(COMMANDS.find("stop").work)
    async with showing(conversation()) as player:
        progress, status = player.screen.query_one(Progress), player.screen.query_one(Status)
        player.screen.begin("/model ")  # whose values the daemon knows, which cannot be started
        await player.pause()
        await player.settle()
        assert status.display and not progress.display
        player.screen.begin("/endless ")
        await player.until(lambda: progress.display, "it is told")
        player.screen.begin("@nothing")
        await player.until(lambda: status.display and not progress.display, "it is left")
