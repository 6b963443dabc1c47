"""Sampling options of a chat: by command, and in the panel."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.widgets import Input, Static

from localspec.config import load_config
from localspec.errors import InvalidOptions
from localspec.protocol.options import Options
from localspec.tui.dialogs.sampling import FIELDS, SamplingScreen
from localspec.tui.fields import field, held, text_of, value_of
from tests.daemon.harness import write_config
from tests.tui.harness import GREEDY, Player, playing


async def opened(player: Player, key: str = "f2") -> None:
    await player.press(key)
    await player.until(lambda: isinstance(player.app.screen, SamplingScreen), "the panel is shown")


async def left(player: Player, key: str) -> None:
    await player.press(key)
    await player.until(lambda: player.app.screen is player.screen, "the panel is left")
    await player.settle()


def note(player: Player) -> str:
    """Return the panel's note on the line at the cursor."""
    return str(player.app.screen.query_one("#note", Static).content)


@pytest.mark.slow
async def test_the_panel_sets_what_is_written(home: Path) -> None:
    async with playing() as player:
        await player.say("What does os.path.join do?")
        await opened(player)
        first = player.app.screen.query_one("#temperature", Input)
        assert first.has_focus and first.value == "0.0" and "0 is greedy" in note(player)
        await player.press("end", "backspace", "5", "tab", "9", "down", "2")
        assert note(player).startswith("top_p takes a number above 0 and at most 1, not '2'")
        await player.press("enter")  # goes nowhere while a line is wrong
        assert isinstance(player.app.screen, SamplingScreen)
        await player.press("backspace")
        await left(player, "enter")
        assert player.chat.options == Options(temperature=0.5, top_k=9, max_tokens=GREEDY.max_tokens)
        session = player.chat.session
        assert session is not None
        client = await player.app.link.client()
        assert (await client.session(session)).options == player.chat.options


@pytest.mark.slow
async def test_the_panel_is_left_as_it_was_and_says_what_holds(home: Path) -> None:
    async with playing(size=(60, 20)) as player:
        await opened(player)
        await player.press("end", "backspace", "3", "up")
        last = player.app.screen.query_one("#remember", Input)
        assert last.has_focus and "true or false" in note(player)
        k = player.app.screen.query_one("#k", Input)
        assert k.placeholder == "not set: as many as pay"
        await left(player, "escape")
        assert player.chat.options == GREEDY
        await opened(player)
        await left(player, "ctrl+s")
        assert player.chat.options == GREEDY and not player.toasts
        await opened(player)
        await player.press("end", "backspace", "3")
        await left(player, "ctrl+s")
        assert player.chat.options == Options(temperature=0.3, max_tokens=GREEDY.max_tokens)


@pytest.mark.slow
async def test_options_are_set_by_command(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with playing() as player:
        await player.do("/set temperature 0.25")
        await player.do('/set stop ["a", "b"]')
        await player.do("/set max_tokens")
        await player.do("/set workspace .")
        await player.do("/set draft none")
        here = str(Path.cwd())
        wanted = Options(temperature=0.25, stop=("a", "b"), workspace=here, draft="none")
        assert player.chat.options == wanted
        for wrong in ("/set temprature 1", "/set k many", "/set threshold 0.5"):
            await player.do(wrong)
        assert player.chat.options == wanted
        for told in (
            "did you mean 'temperature'?",
            "k takes a whole number from 1 to 20, not 'many'",
            "a threshold was given, but drafts are verified exactly",
        ):
            assert any(told in toast for toast in player.toasts), told


@pytest.mark.slow
async def test_a_system_prompt_is_told_before_anything_is_said(home: Path) -> None:
    async with playing() as player:
        await player.do("/system Answer in Latin.")
        await player.do("/system")
        assert "System prompt Answer in Latin." in player.toasts
        await player.say("Hi")
        await player.do("/system Answer in Greek.")
        assert any("Begin a new chat with /new" in toast for toast in player.toasts)
        assert player.chat.system == "Answer in Latin." and player.chat.session is not None
        client = await player.app.link.client()
        assert (await client.session(player.chat.session)).system == "Answer in Latin."


@pytest.mark.parametrize("name", Options.__struct_fields__)
def test_every_option_can_be_written(name: str) -> None:
    assert value_of(name, " ") is None and text_of(None) == ""
    assert field(name).meaning and field(name).takes


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [("temperature", "0", 0.0), ("remember", "false", False), ("stop", '["\\n", "ü"]', ("\n", "ü"))]
    + [("seed", " 7 ", 7), ("exactness", "fast", "fast")],
)
def test_what_is_written_is_read_again(name: str, text: str, value: object) -> None:
    assert value_of(name, text) == value and value_of(name, text_of(value)) == value


def test_the_panel_has_only_options() -> None:
    assert set(FIELDS) < set(Options.__struct_fields__)
    with pytest.raises(InvalidOptions, match="did you mean"):
        value_of("temprature", "1")


def test_what_the_configuration_says_holds_where_the_chat_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    write_config(tmp_path, options={"top_p": 0.9})
    configured = replace(load_config().options, model="bundled")  # the meaning of auto where no model is
    assert held(Options(temperature=0.1)) == configured and held(Options()).top_p == 0.9
