"""The page of all commands and keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.binding import Binding
from textual.containers import VerticalScroll

from localspec.tui.commands.registry import COMMANDS
from localspec.tui.dialogs.session_list import SessionList
from localspec.tui.screens.chat import ChatScreen
from localspec.tui.screens.help import HelpScreen
from localspec.tui.widgets.prompt import Composer, Prompt
from localspec.tui.widgets.transcript import Transcript
from tests.tui.showing import showing

LISTED = [*Prompt.BINDINGS, *Composer.BINDINGS, *Transcript.BINDINGS, *SessionList.BINDINGS]


def plain(text: str) -> str:
    """``text`` with single blanks, wherever its lines end."""
    return f" {' '.join(text.split())} "


@pytest.mark.slow
async def test_every_command_and_every_key_is_told(still: Path) -> None:
    async with showing(size=(100, 200)) as player:
        await player.press("f1")
        await player.settle()
        told = plain(" ".join(line.strip(" │") for line in player.lines()))
        for command in COMMANDS.all():
            assert plain(f" /{command.name} {command.key} {command.argument} {command.help} ") in told
        for binding in [*ChatScreen.BINDINGS, *LISTED]:
            assert isinstance(binding, Binding)
            if not binding.action.startswith("run("):  # those are told beside their commands
                keys = binding.key.replace(",", ", ")
                assert plain(f" {keys} {binding.tooltip or binding.description} ") in told


@pytest.mark.slow
@pytest.mark.parametrize("key", ["escape", "q", "f1"])
async def test_a_key_leaves_it(still: Path, key: str) -> None:
    async with showing() as player:
        player.screen.action_run("help")
        await player.settle()
        assert isinstance(player.app.screen, HelpScreen)
        await player.press(key)
        assert player.app.screen_stack[-1] is player.screen


@pytest.mark.slow
async def test_a_click_beside_it_leaves_it(still: Path) -> None:
    async with showing() as player:
        await player.press("f1")
        await player.settle()
        await player.click(VerticalScroll, offset=(9, 9))
        assert len(player.app.screen_stack) == 2
        await player.click(offset=(0, 0))
        assert player.app.screen_stack == [player.screen]


@pytest.mark.slow
async def test_what_does_not_fit_is_scrolled_to(still: Path) -> None:
    async with showing(size=(60, 20)) as player:
        await player.press("f1")
        await player.settle()
        assert not any("Rename" in line for line in player.lines())
        await player.press("end")
        await player.settle()
        assert any("Rename" in line for line in player.lines())


def test_a_commands_key_is_bound_to_it() -> None:
    bound = {b.key: b.action for b in ChatScreen.BINDINGS if isinstance(b, Binding)}
    for command in COMMANDS.all():
        if command.key and command.name != "quit":  # Textual binds that
            assert bound[command.key] == f"run('{command.name}')" or command.name == "stop"
