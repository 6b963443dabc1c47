"""The palette with all commands, and the panel with all keys."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from textual.binding import Binding
from textual.command import CommandPalette

from localspec.tui.app import ChatApp
from localspec.tui.command import COMMANDS, name_key
from localspec.tui.dialog import deletion
from localspec.tui.screen import ChatScreen
from localspec.tui.widgets.prompt import Prompt
from localspec.tui.widgets.transcript import Transcript
from tests.hygiene.source import PACKAGE, ROOT, nodes_of, python_files
from tests.tui.showing import conversation, showing


@pytest.mark.slow
async def test_it_lists_commands_and_nothing_of_the_toolkit(still: Path) -> None:
    async with showing(size=(100, 90)) as player:
        await player.search("")
        shown = "\n".join(player.lines())
        assert all(f"/{each.name}  {name_key(each.key)}".rstrip() in shown for each in COMMANDS.all())
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


async def test_all_keys_are_seen_at_once_the_most_needed_first(still: Path) -> None:
    bindings = [*ChatApp.BINDINGS, *ChatScreen.BINDINGS, *Prompt.BINDINGS, *Transcript.BINDINGS]
    keys = {each for binding in bindings for each in binding.key.split(",")}  # type: ignore[union-attr]
    async with showing(conversation(), size=(60, 20)) as player:
        await player.press("f1")
        seen = "\n".join(player.lines())
        assert [key for key in keys if not re.search(rf"\b{name_key(key)}(?!\w)", seen)] == []
        places = [seen.index(key) for key in ("Enter", "Esc", "Ctrl-C", "Ctrl-O", "Ctrl-S", "Ctrl-Q", "F1")]
        assert places == sorted(places)


@pytest.mark.parametrize(
    ("key", "name"),
    [("ctrl+o", "Ctrl-O"), ("f1", "F1"), ("alt+up", "Alt-Up"), ("e", "e"), ("ctrl+underscore", "Ctrl-_")],
)
def test_a_key_has_one_name(key: str, name: str) -> None:
    assert name_key(key) == name


def test_sentences_and_pages_name_keys_so() -> None:
    code = (node for path in python_files(PACKAGE / "tui") for node in nodes_of(path))
    texts = [node.value for node in code if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    texts += [path.read_text("utf-8") for path in (ROOT / "docs").glob("*.md")]
    sentences = [text for text in texts if " " in text]
    assert len(sentences) > 100
    other = re.compile(r"(?i:ctrl|alt|shift)\+\w|\^[a-z_]\b|\bf\d\b|\(esc\)")
    assert [text for text in sentences if other.search(text)] == []


def test_a_commands_key_is_bound_to_it() -> None:
    bound = {b.key: b.action for b in ChatScreen.BINDINGS if isinstance(b, Binding)}
    for command in COMMANDS.all():
        if command.key and command.name != "quit":  # Textual binds that
            assert bound[command.key] == f"run('{command.name}')" or command.name == "stop"
