"""Options of a chat, and its system prompt, by command."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from localspec.protocol.options import SETTABLE, Options
from localspec.tui.commands import _settings, field, text_of, value_of
from tests.daemon.harness import write_config
from tests.tui.harness import Player


@pytest.mark.slow
async def test_options_are_set_by_command(player: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    await player.do("/set temperature 0.25")
    await player.do('/set stop ["a", "b"]')
    await player.do("/set max_tokens ")
    await player.do("/set workspace .")
    await player.do("/set draft none")
    here = str(Path.cwd())
    wanted = Options(temperature=0.25, stop=("a", "b"), workspace=here, draft="none")
    assert player.chat.options == wanted
    for wrong in ("/set temprature 1", "/set k many"):
        await player.do(wrong)
    assert player.chat.options == wanted
    for error in ("did you mean 'temperature'?", "k takes a whole number from 1 to 20, not 'many'"):
        assert any(error in toast for toast in player.toasts), error


@pytest.mark.slow
async def test_an_option_is_chosen_and_its_value_typed(player: Player) -> None:
    for key, typed in (("escape", ""), ("0", "/set temperature 0")):
        await player.choose("f2", "temper")
        await player.until(lambda: player.typed == "/set temperature ", "its value can be typed")
        await player.settle()
        await player.press(key)
        assert player.typed == typed
    await player.write(".5")
    await player.press("enter")
    await player.settle()
    assert player.chat.options.temperature == 0.5 and player.toasts == ["temperature is 0.5."]


async def test_settings_have_their_values_and_defaults(still: Path) -> None:
    write_config(still, options={"top_p": 0.9})
    screen: Any = SimpleNamespace(chat=SimpleNamespace(options=Options(temperature=0.25)))
    found = await _settings(screen)
    for name, value in (
        ("temperature", "0.25 (default: the model's own, else 0.7 for chat and 0 to fill in) · 0 is greedy"),
        ("top_p", "0.9 (default: the model's own, else 1) · sample among"),
        ("min_p", "the model's own, else 0 (default) · drop tokens"),
        ("proposer", "auto (default) · source of draft tokens"),
    ):
        assert found[f"{name} "].startswith(value)
    assert [*found][:3] == ["temperature ", "top_p ", "max_tokens "]
    assert "text of 0" not in "".join(found.values()) and "auto, fast or strict" in found["exactness "]


@pytest.mark.slow
async def test_a_system_prompt_is_set_before_the_first_message(player: Player) -> None:
    await player.do("/system Answer in Latin.")
    await player.do("/system")
    assert "System prompt Answer in Latin." in player.toasts
    await player.say("Hi")
    await player.do("/system Answer in Greek.")
    assert any("Begin a new chat with /new" in toast for toast in player.toasts)
    assert player.chat.system == "Answer in Latin." and player.chat.session is not None
    client = await player.app.link.client()
    assert (await client.session(player.chat.session)).system == "Answer in Latin."


@pytest.mark.parametrize("name", SETTABLE)
def test_every_option_can_be_written(name: str) -> None:
    assert value_of(name, " ") is None and text_of(None) == ""
    assert field(name).meaning and field(name).takes


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [("temperature", "0", 0.0), ("remember", "false", False), ("stop", '["\\n", "ü"]', ("\n", "ü"))]
    + [("seed", " 7 ", 7), ("exactness", "fast", "fast")],
)
def test_a_value_is_read_as_it_is_written(name: str, text: str, value: object) -> None:
    assert value_of(name, text) == value and value_of(name, text_of(value)) == value
