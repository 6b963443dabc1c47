"""Every command is typed and every key is pressed by a test that sees what comes of it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest
from textual.binding import Binding
from textual.selection import SELECT_ALL

import localspec.tui
from localspec.tui.commands.registry import COMMANDS
from localspec.tui.conversation import Question
from localspec.tui.dialogs.confirm import Confirm, deletion
from localspec.tui.screens.help import HelpScreen
from tests.tui import (
    harness,
    test_attach,
    test_chat,
    test_help,
    test_models,
    test_prompt,
    test_sampling,
    test_screens,
    test_session_list,
    test_sessions,
    test_transcript,
    test_view,
)
from tests.tui.harness import ENDLESS, Player, playing
from tests.tui.showing import answered, conversation, showing
from tests.waiting import run

Play = Callable[[Player], Awaitable[None]]

OF_THE_TOOLKIT = ("ChatApp ctrl+q", "ChatScreen ctrl+c")
"""keys that it binds, and that do something of ours"""
ELSEWHERE: dict[Callable[..., object], str] = {
    harness.Player.search: "ChatApp ctrl+p",
    test_attach.test_a_file_is_attached_and_left_out_of_an_edit: "/attach",
    test_chat.test_an_answer_is_stopped: "Prompt enter, ChatScreen escape",
    test_chat.test_an_answer_is_given_anew: "ChatScreen ctrl+r",
    test_chat.test_an_earlier_message_is_edited: "ChatScreen alt+up, Transcript k, Transcript e",
    test_chat.test_an_edit_is_left: "ChatScreen ctrl+g",
    test_help.test_every_command_and_every_key_is_told: "ChatScreen f1",
    test_help.test_a_key_leaves_it: "HelpScreen escape, HelpScreen q, HelpScreen f1",
    test_models.test_a_model_is_chosen_from_all_that_are_here: "ChatScreen ctrl+o",
    test_models.test_a_list_is_left_as_it_was: "ChooseScreen escape, /proposer",
    test_models.test_a_draft_is_named_or_chosen: "/draft, ChooseScreen up, ChooseScreen down, "
    "ChooseScreen pageup, ChooseScreen pagedown",
    test_prompt.test_commands_are_suggested: "Prompt tab",
    test_prompt.test_lines_are_gone_through_before_the_history: "Prompt shift+enter, Prompt up, Prompt down",
    test_sampling.opened: "ChatScreen f2",
    test_sampling.test_the_panel_sets_what_is_written: "SamplingScreen down",
    test_sampling.test_the_panel_is_left_as_it_was_and_says_what_holds: "SamplingScreen up, "
    "SamplingScreen escape, SamplingScreen ctrl+s",
    test_sampling.test_options_are_set_by_command: "/set",
    test_sampling.test_a_system_prompt_is_told_before_anything_is_said: "/system",
    test_session_list.listing: "/sessions, ChatScreen ctrl+s",
    test_session_list.test_a_chat_is_opened_and_marked: "SessionsScreen down, SessionList enter",
    test_session_list.test_chats_are_found_by_what_is_typed: "SessionsScreen escape",
    test_session_list.test_a_chat_is_named_in_its_place: "SessionList r, SessionList f2",
    test_session_list.test_a_chat_is_deleted_once_that_is_confirmed: "SessionList d, SessionList delete, "
    "Confirm y, Confirm n",
    test_session_list.test_a_chat_is_copied_and_exported: "SessionList e, SessionList f",
    test_sessions.test_a_chat_is_named_copied_and_another_begun: "/rename, /fork, /new, ChatScreen ctrl+n",
    test_sessions.test_a_chat_goes_on_from_an_earlier_message: "Transcript f",
    test_sessions.test_a_chat_is_deleted_once_that_is_confirmed: "/delete, Confirm escape",
    test_sessions.test_a_private_chat_leaves_nothing_behind: "/private",
    test_sessions.test_who_leaves_a_private_chat_by_a_key_is_asked: "ChatApp ctrl+q",
    test_sessions.test_a_chat_is_exported: "/export",
    test_screens.chosen: "Transcript s",
    test_transcript.test_a_message_is_chosen_by_keys_and_by_the_mouse: "Transcript up, Transcript down, "
    "Transcript j",
    test_view.test_colours_show_the_text_and_the_pulse: "ChatScreen ctrl+t, /colours",
    test_view.test_statistics_of_the_last_answer: "/stats",
    test_view.test_a_theme_is_kept_for_the_next_chat: "/theme",
}
"""keys by the test that presses them; a dialog or widget is named before its keys"""


async def copy(player: Player) -> None:
    await player.do("/copy")
    assert player.app.clipboard == player.chat.said[-1].text and player.toasts == ["Copied."]


async def code(player: Player) -> None:
    for command, block in (("/code", "two"), ("/code 1", "one")):
        await player.do(command)
        assert player.app.clipboard == block
    assert player.toasts == ["Copied code block 2 of 2.", "Copied code block 1 of 2."]


async def edit(player: Player) -> None:
    await player.do("/edit")
    assert player.typed == "And what of tabs?"


async def help(player: Player) -> None:
    await player.do("/help")
    assert isinstance(player.app.screen, HelpScreen)


async def quit(player: Player) -> None:
    assert not player.app._exit
    await player.do("/quit")
    assert player.app._exit


async def newline(player: Player) -> None:
    await player.press("a", "ctrl+j", "b")
    assert player.typed == "a\nb"


async def on_a_message(player: Player) -> None:
    await player.press("alt+up", "c")
    assert player.app.clipboard == player.chat.said[3].text
    await player.press("b")
    assert player.app.clipboard == "two"
    await player.press("k", "k", "b")
    assert player.app.clipboard.startswith("import textwrap\n")
    await player.press("k", "c")
    assert player.app.clipboard == player.chat.said[0].text


async def selection(player: Player) -> None:
    await player.write("not this")
    player.screen.selections = {player.transcript: SELECT_ALL}
    await player.press("ctrl+c")
    assert player.app.clipboard.startswith("What does `textwrap.dedent` do?\n")


async def scrolling(player: Player) -> None:
    end = player.transcript.scroll_offset.y
    await player.press("pageup")
    assert player.transcript.scroll_offset.y < end
    await player.press("pagedown")
    assert player.transcript.scroll_offset.y == end
    await player.press("ctrl+home")
    assert player.transcript.scroll_offset.y == 0
    await player.press("ctrl+end")
    assert player.transcript.scroll_offset.y == end


async def confirming(player: Player) -> None:
    answers: list[bool | None] = []
    await player.app.push_screen(deletion("this"), answers.append)
    asked = player.app.screen
    assert isinstance(asked, Confirm) and asked.focused is asked.query_one("#no")
    for keys in (("left", "right"), ("up", "down")):
        for key, button in zip(keys, ("#yes", "#no"), strict=True):
            await player.press(key)
            assert asked.focused is asked.query_one(button)
    await player.press("left", "enter")
    await player.settle()
    assert answers == [True]


HERE: dict[Callable[..., object], str] = {
    copy: "/copy",
    code: "/code",
    edit: "/edit",
    help: "/help",
    quit: "/quit",
    newline: "Prompt ctrl+j",
    on_a_message: "Transcript c, Transcript b",
    selection: "ChatScreen ctrl+c",
    scrolling: "ChatScreen pageup, ChatScreen pagedown, ChatScreen ctrl+home, ChatScreen ctrl+end",
    confirming: "Confirm left, Confirm right, Confirm up, Confirm down",
}


@pytest.mark.slow
@pytest.mark.parametrize("play", HERE, ids=lambda play: play.__name__)
def test_a_key_does_what_it_is_for(still: Path, play: Play) -> None:
    said = [*conversation(), Question("And what of tabs?", 3), answered("```\none\n```\n- ```\n  two\n  ```")]

    async def test() -> None:
        async with showing(said, size=(60, 20)) as player:
            await play(player)

    run(test())


@pytest.mark.slow
def test_what_the_daemon_is_asked_for(home: Path) -> None:
    async def test() -> None:
        async with playing(ENDLESS) as player:
            stopped = await player.ask_on("What does textwrap.dedent do?")
            await player.do("/stop")
            assert stopped.status == "cancelled"
            for command, keys in (("/regenerate", ["enter"]), ("", ["alt+up", "r"])):
                before = player.chat.answer
                await player.write(command)
                await player.press(*keys)
                await player.until(lambda b=before: player.chat.answer is not b, "it answers anew")  # type: ignore[misc]
                assert player.chat.answering and len(player.chat.said) == 2
                await player.press("escape")
                await player.settle()
            await player.do("/model stdlib-1m")
            assert player.chat.pairing is not None and player.chat.pairing.target == "stdlib-1m"
            assert any(toast.startswith("stdlib-1m answers") for toast in player.toasts)

    run(test())


PRESSED: dict[Callable[..., object], str] = {
    **ELSEWHERE,
    **HERE,
    test_what_the_daemon_is_asked_for: "/stop, /regenerate, /model, Transcript r",
}


def bound() -> Iterator[str]:
    """Return all commands, and all keys by their dialog or widget."""
    yield from (f"/{command.name}" for command in COMMANDS.all())
    for module in walk_packages(localspec.tui.__path__, "localspec.tui."):
        for name, each in vars(import_module(module.name)).items():
            if inspect.isclass(each) and each.__module__ == module.name:
                for binding in vars(each).get("BINDINGS", ()):
                    assert isinstance(binding, Binding)
                    yield from (f"{name} {key}" for key in binding.key.split(","))
    yield from OF_THE_TOOLKIT


def test_every_command_is_typed_and_every_key_is_pressed() -> None:
    pressed = [each for told in PRESSED.values() for each in told.split(", ")]
    assert sorted(pressed) == sorted(bound())


@pytest.mark.parametrize("test", PRESSED, ids=lambda test: test.__name__)
def test_a_test_presses_what_it_is_said_to(test: Callable[..., object]) -> None:
    source = inspect.getsource(test)
    for each in PRESSED[test].split(", "):
        typed = f'"{each.split()[-1]}"'
        assert typed in source or (each[0] == "/" and typed[:-1] in source)
