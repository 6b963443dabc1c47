"""Another model, another draft, another proposer: by name, or chosen from a list."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from localspec.models.catalogue import DEFAULT
from localspec.protocol.messages import ModelDescription, Pairing
from localspec.tui import commands
from localspec.wording import pairing_sentence
from tests.tui.harness import ENDLESS, Player, playing


@pytest.mark.slow
async def test_a_model_is_chosen_from_all_that_are_here(player: Player) -> None:
    await player.choose("ctrl+o", "1m")
    await player.settle()
    pairing = player.chat.pairing
    assert pairing is not None and pairing.target == "stdlib-1m" and pairing.draft is None
    assert player.chat.options.model == "stdlib-1m"
    assert any("stdlib-1m answers" in toast for toast in player.toasts)


@pytest.mark.slow
async def test_a_proposer_counts_from_the_next_answer_on(player: Player) -> None:
    await player.say("What does os.path.join do?")
    await player.do("/set proposer prompt-lookup")
    await player.say("And os.path.split?")
    assert player.chat.pairing is not None and player.chat.pairing.proposer == "prompt-lookup"
    answer = player.chat.answer
    assert answer is not None and answer.result is not None
    assert set(answer.result.stats.proposers) <= {"prompt-lookup", "none"}


@pytest.mark.slow
async def test_a_model_that_cannot_be_loaded_changes_nothing(player: Player) -> None:
    await player.say("What does os.path.join do?")
    before, pairing = player.chat.options, player.chat.pairing
    await player.do("/model no-such-model")
    await player.do("/set proposer none-such")
    assert player.chat.options == before and player.chat.pairing == pairing
    assert any("no-such-model" in toast for toast in player.toasts)
    assert any("proposer takes auto, draft, memory" in toast for toast in player.toasts)


@pytest.mark.slow
async def test_a_choice_during_an_answer_counts_from_the_next_one_on(home: Path) -> None:
    async with playing(ENDLESS) as player:
        await player.ask_on("Hi")
        await player.send("/model stdlib-1m")
        await player.until(lambda: bool(player.toasts), "it is shown")
        (toast,) = player.toasts
        assert toast.startswith("stdlib-1m answers") and toast.endswith(" from the next question on.")
        assert player.chat.answering and player.chat.options.model == "stdlib-1m"
        await player.press("escape", "escape")
        await player.settle()


def described(name: str, **facts: object) -> ModelDescription:
    known = {"id": name, "path": f"/m/{name}.gguf", "format": "gguf", "backend": "llama_cpp", "size": 10**9}
    return ModelDescription(**{"names": (name,), **known, **facts})  # type: ignore[arg-type]


async def test_the_current_model_comes_first_and_toys_last() -> None:
    toy, broken = described("stdlib-1m", store="bundled"), described("broken", problem="it ends early")
    pairing = Pairing("two", None, "auto", "llama_cpp", "")
    models = AsyncMock(return_value=(toy, broken, described(DEFAULT), described("two")))
    screen: Any = SimpleNamespace(chat=SimpleNamespace(pairing=pairing), models=models)
    found = await commands._models(screen)
    assert [*found][:2] == ["two", DEFAULT] and [*found][-2:] == ["stdlib-1m", "broken"]
    assert found["two"] == "current · 1.0 GB" and found["broken"] == "unusable: it ends early"
    assert found["qwen2.5-coder:1.5b"] == "to download: 1.1 GB · code on a laptop"


async def test_a_model_that_is_not_here_is_downloaded_after_a_question(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    async with playing() as player:
        player.put("/model qwen3:8b")
        for answer in ("n", "y"):
            await player.press("enter")
            await player.until(lambda: "Download qwen3:8b (5.0 GB)?" in player.seen(), "it asks")
            await player.press(answer)
            await player.settle()
            player.put("/model qwen3:8b")
        assert len(player.toasts) == 1 and "cannot be reached" in player.toasts[0]
        assert player.chat.pairing is not None and player.chat.pairing.target == "stdlib-6m"


def test_models_of_one_name_are_distinguished_and_unusable_ones_marked() -> None:
    mlx = {"path": "/m/one", "format": "mlx", "backend": "mlx", "problem": "it ends early"}
    models = (described("one", parameters=7 * 10**9, context=4096), described("one", **mlx))
    found = commands.describe_models(models, Pairing("one", None, "auto", "llama_cpp", ""))
    assert found == {"one": "current · 7.0 B · 1.0 GB · 4,096 context", "/m/one": "unusable: it ends early"}


def test_a_pairing_in_a_sentence() -> None:
    pair = Pairing("big", "small", "auto", "llama_cpp", "the bundled pair")
    assert pairing_sentence(pair) == "big answers, small drafts (the bundled pair)"
    assert pairing_sentence(Pairing("big", "small", "none", "mlx", "why")) == "big answers without drafts"
    assert pairing_sentence(Pairing("big", None, "memory", "mlx", "why")) == "big answers, memory drafts"
