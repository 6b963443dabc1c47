"""The palette with all commands, and the panel with all keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.binding import Binding
from textual.command import CommandPalette

from localspec.tui.command import COMMANDS, name_key
from localspec.tui.dialog import Confirm
from localspec.tui.screen import ChatScreen
from tests.tui.harness import Player
from tests.tui.showing import conversation, showing


@pytest.mark.slow
async def test_it_lists_commands_and_nothing_of_the_toolkit(still: Path) -> None:
    async with showing(size=(100, 90)) as player:
        await player.search("")
        shown = "\n".join(player.lines())
        assert all(f"/{each.name}  {name_key(each.key)}".rstrip() in shown for each in COMMANDS.values())
        assert "Screenshot" not in shown and "Maximize" not in shown and "nord" not in shown


@pytest.mark.slow
async def test_a_command_is_run_and_one_that_needs_an_argument_begun(viewer: Player) -> None:
    await viewer.search("colours")
    await viewer.press("enter")
    await viewer.until(lambda: viewer.transcript.raw, "tokens are coloured")
    await viewer.search("rename")
    await viewer.press("enter")
    await viewer.until(lambda: viewer.typed == "/rename ", "it begins to be typed")
    await viewer.press("x")
    assert viewer.typed == "/rename x"


@pytest.mark.slow
async def test_a_dialog_is_answered_first(viewer: Player) -> None:
    await viewer.app.push_screen(dialog := Confirm("Delete?", "Delete"))
    await viewer.press("ctrl+p")
    assert viewer.app.screen is dialog
    await viewer.press("escape", "ctrl+p")
    assert isinstance(viewer.app.screen, CommandPalette)


async def test_the_keys_that_act_now_are_shown(still: Path) -> None:
    async with showing(conversation(), size=(100, 60)) as player:
        await player.press("f1")
        for before, keys in (([], ("Enter", "Ctrl-O", "Ctrl-Q")), (["alt+up"], ("e", "k", "F1"))):
            await player.press(*before)
            await player.until(
                lambda keys=keys: all(f" {key} " in player.seen() for key in keys),  # type: ignore[misc]
                "they are shown",
            )


@pytest.mark.parametrize(
    ("key", "name"),
    [("ctrl+o", "Ctrl-O"), ("f1", "F1"), ("alt+up", "Alt-Up"), ("e", "e"), ("ctrl+underscore", "Ctrl-_")],
)
def test_a_key_has_one_name(key: str, name: str) -> None:
    assert name_key(key) == name


def test_a_commands_key_is_bound_to_it() -> None:
    bound = {b.key: b.action for b in ChatScreen.BINDINGS if isinstance(b, Binding)}
    for command in COMMANDS.values():
        if command.key and command.name != "quit":  # Textual binds that
            assert bound[command.key] == f"run('{command.name}')"
