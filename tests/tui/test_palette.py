"""The palette with all commands, and the panel with all keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.binding import Binding
from textual.command import CommandPalette
from textual.widgets import HelpPanel

from localspec.tui.command import COMMANDS
from localspec.tui.dialog import deletion
from localspec.tui.screen import ChatScreen
from tests.tui.showing import conversation, showing


@pytest.mark.slow
async def test_it_lists_commands_and_nothing_of_the_toolkit(still: Path) -> None:
    async with showing(size=(100, 90)) as player:
        await player.search("")
        shown = "\n".join(player.lines())
        assert all(f"/{each.name}  {each.key}".rstrip() in shown for each in COMMANDS.all())
        assert "Screenshot" not in shown and "Maximize" not in shown and "nord" not in shown


@pytest.mark.slow
async def test_a_command_is_run_and_one_that_needs_an_argument_begun(still: Path) -> None:
    async with showing(conversation()) as player:
        await player.search("colours")
        await player.press("enter")
        await player.until(lambda: player.transcript.raw, "tokens are coloured")
        await player.search("rename")
        await player.press("enter")
        await player.until(lambda: player.typed == "/rename ", "it begins to be typed")
        await player.press("x")
        assert player.typed == "/rename x"


@pytest.mark.slow
async def test_a_dialog_is_answered_first(still: Path) -> None:
    async with showing(conversation()) as player:
        await player.app.push_screen(dialog := deletion("Count."))
        await player.press("ctrl+p")
        assert player.app.screen is dialog
        await player.press("escape", "ctrl+p")
        assert isinstance(player.app.screen, CommandPalette)


@pytest.mark.slow
async def test_a_panel_shows_the_keys_that_work_now(still: Path) -> None:
    async with showing(conversation(), size=(100, 60)) as player:
        await player.press("f1")
        await player.settle()
        assert any("Edit" in line and "^g" in line for line in player.lines())
        await player.press("alt+up")
        await player.settle()
        assert any("Fork" in line for line in player.lines())
        await player.press("f1")
        await player.settle()
        assert not player.screen.query(HelpPanel)
        await player.press("f1", "escape")
        await player.settle()
        assert not player.screen.query(HelpPanel)


def test_a_commands_key_is_bound_to_it() -> None:
    bound = {b.key: b.action for b in ChatScreen.BINDINGS if isinstance(b, Binding)}
    for command in COMMANDS.all():
        if command.key and command.name != "quit":  # Textual binds that
            assert bound[command.key] == f"run('{command.name}')" or command.name == "stop"
