"""Another model, another draft, another proposer: by name, or chosen from a list."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import OptionList

from localspec.protocol.messages import ModelDescription
from localspec.protocol.options import Options, choices
from localspec.protocol.sessions import Pairing
from localspec.tui.commands.models import PROPOSERS, _models
from localspec.tui.dialogs.choose import Choice, ChooseScreen
from localspec.tui.widgets.prompt import Composer
from localspec.wording import pairing_told
from tests.tui.harness import ENDLESS, Player, playing


async def chosen(player: Player, key_or_command: str, *keys: str) -> None:
    """Open a list, press keys in it, and wait for what follows."""
    if key_or_command.startswith("/"):
        await player.write(key_or_command)
        await player.press("enter")
    else:
        await player.press(key_or_command)
    await player.until(lambda: isinstance(player.app.screen, ChooseScreen), "a list is shown")
    await player.press(*keys)
    await player.until(lambda: player.app.screen is player.screen, "the list is left")
    await player.settle()


@pytest.mark.slow
async def test_a_model_is_chosen_from_all_that_are_here(home: Path) -> None:
    async with playing() as player:
        await player.press("ctrl+o")
        await player.until(lambda: isinstance(player.app.screen, ChooseScreen), "a list is shown")
        seen = player.lines()
        assert any("● stdlib-6m" in line and "6.5 M · F16" in line and "loaded" in line for line in seen)
        assert any("stdlib-1m" in line for line in seen)
        await player.write("1m")
        listed = player.app.screen.query_one(OptionList).options
        assert all("stdlib-1m" in str(option.prompt) for option in listed)
        await player.press("enter")
        await player.until(lambda: player.app.screen is player.screen, "the list is left")
        await player.settle()
        pairing = player.chat.pairing
        assert pairing is not None and pairing.target == "stdlib-1m" and pairing.draft is None
        assert player.chat.options.model == "stdlib-1m"
        assert any("stdlib-1m answers" in toast for toast in player.toasts)


@pytest.mark.slow
async def test_a_list_is_left_as_it_was(home: Path) -> None:
    async with playing() as player:
        before = player.chat.options
        await chosen(player, "ctrl+o", "down", "escape")
        await chosen(player, "/proposer", "z", "z", "enter", "escape")
        assert player.chat.options == before and not player.toasts


@pytest.mark.slow
async def test_a_list_is_used_with_the_mouse(home: Path) -> None:
    async with playing() as player:
        for where, offset in ((OptionList, (4, 1)), (None, (0, 0))):
            await player.write("/proposer ")
            await player.press("enter")
            await player.until(lambda: isinstance(player.app.screen, ChooseScreen), "a list is shown")
            await player._pilot.click(where, offset=offset)
            await player.until(lambda: player.app.screen is player.screen, "the list is left")
            await player.settle()
            assert player.chat.options.proposer == "none"


@pytest.mark.slow
async def test_a_draft_is_named_or_chosen(home: Path) -> None:
    async with playing() as player:
        await player.do("/draft none")
        assert player.chat.pairing is not None and player.chat.pairing.draft is None
        await chosen(player, "/draft", "down", "down", "pagedown", "pageup", "up", "down", "enter")
        assert player.chat.options.draft == "auto" and player.chat.pairing.draft == "stdlib-1m"
        assert "the bundled pair" in player.chat.pairing.reason


@pytest.mark.slow
async def test_a_proposer_counts_from_the_next_answer_on(home: Path) -> None:
    async with playing() as player:
        await player.say("What does os.path.join do?")
        await chosen(player, "/proposer", *"prompt", "enter")
        await player.say("And os.path.split?")
        assert player.chat.pairing is not None and player.chat.pairing.proposer == "prompt-lookup"
        answer = player.chat.answer
        assert answer is not None and answer.result is not None
        assert set(answer.result.stats.proposers) <= {"prompt-lookup", "none"}


@pytest.mark.slow
async def test_what_cannot_be_loaded_changes_nothing(home: Path) -> None:
    async with playing() as player:
        await player.say("What does os.path.join do?")
        before, pairing = player.chat.options, player.chat.pairing
        await player.do("/model no-such-model")
        await player.do("/proposer nobody")
        assert player.chat.options == before and player.chat.pairing == pairing
        assert any("no-such-model" in toast for toast in player.toasts)
        assert any("/proposer takes auto, draft, memory" in toast for toast in player.toasts)


@pytest.mark.slow
async def test_what_is_set_while_an_answer_comes_counts_from_the_next_one_on(home: Path) -> None:
    async with playing(ENDLESS) as player:
        await player.write("Hi")
        await player.press("enter")
        await player.until(lambda: bool(player.chat.answer and player.chat.answer.tokens), "it answers")
        player.screen.query_one(Composer).text = "/proposer memory"
        await player.press("enter")
        await player.until(lambda: bool(player.toasts), "it is told")
        assert player.toasts == ["stdlib-6m answers, memory drafts from the next question on."]
        assert player.chat.answering and player.chat.options.proposer == "memory"
        await player.press("escape", "escape")
        await player.settle()


def described(name: str, **facts: object) -> ModelDescription:
    """A model on a disk."""
    known = {"id": name, "path": f"/m/{name}.gguf", "format": "gguf", "backend": "llama_cpp", "size": 10**9}
    return ModelDescription(**{"names": (name,), **known, **facts})  # type: ignore[arg-type]


def test_models_of_one_name_are_told_apart_and_broken_ones_come_last() -> None:
    mlx = {"path": "/m/one", "format": "mlx", "backend": "mlx"}
    models = (described("bad", problem="it ends early"), described("one"), described("one", **mlx))
    found = _models(models, Pairing("one", None, "auto", "mlx", ""))
    assert [choice.value for choice in found] == ["one", "/m/one", "bad"] or found[2].problem
    assert [choice.value for choice in found if choice.current] == ["/m/one"]
    assert {choice.value: choice.problem for choice in found}["bad"] == "it ends early"


def test_a_choice_is_found_by_all_words_of_what_is_seen() -> None:
    choice = Choice("x", "Qwen2.5-Coder-7B", "7.6 B · Q4_K_M", problem="it ends early")
    assert choice.has(["coder", "q4"]) and choice.has([]) and choice.has(["early"])
    assert not choice.has(["coder", "q8"])


def test_every_proposer_is_told() -> None:
    assert sorted(PROPOSERS) == sorted(choices(Options, "proposer"))


def test_a_pairing_in_a_sentence() -> None:
    pair = Pairing("big", "small", "auto", "llama_cpp", "the bundled pair")
    assert pairing_told(pair) == "big answers, small drafts (the bundled pair)"
    assert pairing_told(Pairing("big", "small", "none", "mlx", "why")) == "big answers without drafts"
    assert pairing_told(Pairing("big", None, "memory", "mlx", "why")) == "big answers, memory drafts"
