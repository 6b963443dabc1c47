"""Every command is typed and every key is pressed by a test that sees what comes of it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import localspec.tui
from localspec.tui.command import COMMANDS
from localspec.tui.conversation import ChatQuestion
from tests.tui.harness import ENDLESS, Player, playing
from tests.tui.showing import answered, conversation, showing

Play = Callable[[Player], Awaitable[None]]


async def edit(player: Player) -> None:
    await player.do("/edit")
    assert player.typed == "And what of tabs?"


async def help(player: Player) -> None:
    for key in ("f1", "escape"):
        await player.send("/help")
        await player.until(lambda: bool(player.screen.query("HelpPanel")), "the keys are shown")
        await player.press("x", key)
        await player.until(lambda: not player.screen.query("HelpPanel"), "they are hidden")
        assert player.typed == "x"


async def quit(player: Player) -> None:
    assert not player.app._exit
    await player.do("/quit")
    assert player.app._exit


async def shell_keys(player: Player) -> None:
    await player.press("a", "b", "left", "ctrl+d", "ctrl+z")
    assert player.typed == "a" and not player.app._exit
    await player.press("ctrl+underscore")
    assert player.typed == "ab"
    await player.press("delete", "backspace", "ctrl+d")
    await player.settle()
    assert player.app._exit


async def newline(player: Player) -> None:
    await player.press("a", "ctrl+j", "b")
    assert player.typed == "a\nb"


async def on_a_message(player: Player) -> None:
    await player.press("alt+up", "c")
    assert player.app.clipboard == player.chat.said[3].text
    await player.press("k", "k", "k", "c")
    assert player.app.clipboard == player.chat.said[0].text


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


HERE = (edit, help, quit, shell_keys, newline, on_a_message, scrolling)


@pytest.mark.slow
@pytest.mark.parametrize("play", HERE, ids=lambda play: play.__name__)
async def test_a_key_does_what_it_is_for(still: Path, play: Play) -> None:
    said = [
        *conversation(),
        ChatQuestion("And what of tabs?", 3),
        answered("```\none\n```\n- ```\n  two\n  ```"),
    ]
    async with showing(said, size=(60, 20)) as player:
        await play(player)


@pytest.mark.slow
async def test_what_the_daemon_is_asked_for(home: Path) -> None:
    async with playing(ENDLESS) as player:
        stopped = await player.ask_on("What does textwrap.dedent do?")
        await player.press("escape")
        await player.settle()
        assert stopped.status == "cancelled"
        for command, keys in (("/regenerate", ["enter"]), ("", ["alt+up", "r"])):
            before = player.chat.answer
            await player.write(command)
            await player.press(*keys)
            await player.until(lambda b=before: player.chat.answer is not b, "it answers anew")  # type: ignore[misc]
            assert player.chat.answering and len(player.chat.said) == 2
            await player.press("escape")
            await player.settle()


def bound() -> Iterator[str]:
    """Return all commands and all keys, as they begin or stand in quotes."""
    yield from (f'"/{command.name}' for command in COMMANDS.values())
    for module in walk_packages(localspec.tui.__path__, "localspec.tui."):
        for each in vars(import_module(module.name)).values():
            if inspect.isclass(each) and each.__module__ == module.name:
                for binding in vars(each).get("BINDINGS", ()):
                    if not binding.system:  # the toolkit's own
                        yield from (f'"{key}"' for key in binding.key.split(","))


def test_every_command_is_typed_and_every_key_is_pressed() -> None:
    tests = "".join(path.read_text("utf-8") for path in Path(__file__).parent.glob("*.py"))
    assert [each for each in bound() if each not in tests] == []
