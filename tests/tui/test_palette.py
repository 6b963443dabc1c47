"""The palette: commands and themes, found by what is typed of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.command import CommandPalette

from localspec.tui.actions import ChatActions
from localspec.tui.commands.command import COMMANDS, Command
from localspec.tui.commands.registry import COMMANDS as REGISTERED
from localspec.tui.dialogs.choose import Choice, ChooseScreen
from localspec.tui.dialogs.confirm import deletion
from localspec.tui.screens.help import HelpScreen
from tests.tui.showing import conversation, showing


@pytest.mark.slow
async def test_it_lists_commands_and_nothing_of_the_toolkit(still: Path) -> None:
    async with showing(size=(100, 90)) as player:
        await player.search("")
        shown = "\n".join(player.lines())
        assert all(f"/{command.name}" in shown for command in REGISTERED.all())
        assert "Screenshot" not in shown and "Maximize" not in shown and "nord" not in shown


@pytest.mark.slow
async def test_a_command_is_run(still: Path) -> None:
    async with showing(conversation()) as player:
        await player.search("colours")
        await player.press("enter")
        await player.until(lambda: player.transcript.raw, "tokens are coloured")


@pytest.mark.slow
async def test_a_dialog_is_answered_first(still: Path) -> None:
    async with showing(conversation()) as player:
        for dialog in (deletion("Count."), ChooseScreen("Which?", [Choice("one", "one")])):
            await player.app.push_screen(dialog)
            await player.press("ctrl+p")
            assert player.app.screen is dialog
            await player.press("escape")
        await player.press("f1", "ctrl+p")
        assert isinstance(player.app.screen, HelpScreen)
        await player.press("escape", "ctrl+p")
        assert isinstance(player.app.screen, CommandPalette)


@pytest.fixture
def demanding() -> Iterator[Command]:
    """A command that cannot do without an argument."""

    async def work(screen: ChatActions, argument: str) -> None:
        """Demand something of you."""

    COMMANDS.command("demand", "THING")(work)
    yield COMMANDS.find("demand")
    del COMMANDS._by_name["demand"]


@pytest.mark.slow
async def test_a_command_that_needs_an_argument_begins_to_be_typed(still: Path, demanding: Command) -> None:
    async with showing() as player:
        await player.search("of you")
        await player.press("enter")
        await player.until(lambda: player.typed == "/demand ", "it begins to be typed")
        await player.press("x")
        assert player.typed == "/demand x"


@pytest.mark.slow
async def test_a_theme_is_found_by_its_name(still: Path) -> None:
    async with showing() as player:
        await player.search("dracula")
        await player.press("enter")
        await player.until(lambda: player.app.theme == "dracula", "the theme is another")
