"""The status line, and the progress in its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from localspec.protocol.messages import Pairing, Placement
from localspec.protocol.requests import Delta, ProposerStats, Stats, Token
from localspec.tui import facts
from localspec.tui.conversation import ChatAnswer, ChatQuestion
from localspec.tui.widgets.status import legend, summary
from tests import gpu
from tests.client.conftest import own_home
from tests.tui.harness import Player, playing
from tests.tui.showing import LOOK, PAIRING, answered, conversation, growing, show, showing


def status(stats: Stats | None = None, *, private: bool = False) -> str:
    answer = answered()
    if stats is not None and answer.result is not None:
        answer.result.stats = stats
    return summary(PAIRING, answer, private=private)


def test_what_matters_most_comes_first() -> None:
    whole = "stdlib-6m · 212 tok/s · 74% accepted · 1.2 s saved · auto: draft + lookup · draft stdlib-1m"
    assert status() == whole
    assert status(private=True) == f"private · {whole}"


def test_the_part_of_the_context_that_is_used_is_shown() -> None:
    answer = answered()
    assert answer.result is not None
    answer.result.prompt_tokens, answer.context = 1_200, 32_768
    used = 1_200 + answer.result.completion_tokens
    assert f"stdlib-6m · {used:,} of 32,768 tokens · 212 tok/s" in summary(PAIRING, answer, private=False)


def test_figures_of_another_model_are_left_out() -> None:
    answer = answered()
    answer.model = PAIRING.target
    another = Pairing("another", None, "auto", "llama.cpp", "")
    assert summary(another, answer, private=False) == "another · auto"


@pytest.mark.parametrize(
    ("stats", "shown"),
    [
        (Stats(drafted=9, acceptance_rate=0.0, time_saved_s=-0.04), " · 0% accepted · 40 ms slower · "),
        (Stats(speculation_off_reason="drafts cost too much"), " · drafts cost too much · "),
        (Stats(proposers={"draft": ProposerStats(), "memory": ProposerStats(3, 1)}), " · auto: memory · "),
    ],
)
def test_the_effect_of_speculation(stats: Stats, shown: str) -> None:
    assert shown in status(stats)


@pytest.mark.parametrize(
    ("layers", "cpu_experts", "shown"),
    [(25, 0, "gpu"), (8, 0, "gpu 8/25"), (25, 3, "gpu, experts cpu"), (0, 0, "cpu")],
)
def test_the_place_of_the_model(layers: int, cpu_experts: int, shown: str) -> None:
    pairing = replace(PAIRING, placement=Placement(("NVIDIA H200",), layers, 25, cpu_experts))
    assert summary(pairing, None, private=False) == f"stdlib-6m · {shown} · auto · draft stdlib-1m"


@pytest.mark.slow
async def test_the_place_of_a_model_that_was_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", gpu.python_path(tmp_path))
    with own_home():
        async with playing() as player:
            assert line(player).startswith(" stdlib-6m · gpu 5/7 · auto")
            await player.say("What does os.path.join do?")
            assert player.chat.pairing is not None and player.chat.pairing.placement is not None


def test_an_answer_that_grows_is_counted() -> None:
    answer = growing("one two", "target 1, draft 3 1")
    assert summary(None, answer, private=False) == "5 tokens"
    answer.grow(Delta("!", (Token(0, "target", 1),)))
    assert summary(PAIRING, answer, private=False) == ("stdlib-6m · 6 tokens · auto · draft stdlib-1m")


def test_a_legend_has_the_share_of_each_proposer() -> None:
    found = legend(growing("one two", "target 1, draft 3 1"), LOOK)
    assert "target 40%" in found.plain and "draft 60%" in found.plain
    assert {span.style for span in found.spans} == set(LOOK.sources.values())
    assert "%" not in legend(ChatAnswer(), LOOK).plain


def line(player: Player) -> str:
    return player.lines()[player.screen.query_one("#status").region.y]


async def test_what_does_not_fit_is_cut(still: Path) -> None:
    async with showing(conversation(), size=(60, 20)) as player:
        assert line(player) == " stdlib-6m · 212 tok/s · 74% accepted · 1.2 s saved · auto…"
        await player.resize(100, 30)
        assert line(player) == f" {status()}"


async def test_work_is_shown_until_the_first_token_comes(still: Path) -> None:
    async with showing(size=(60, 20)) as player:
        answer = ChatAnswer(status="streaming")
        show(player, [ChatQuestion("A long one."), answer])
        player.screen.post_message(facts.Working("waiting for its turn", None))
        await player.settle()
        assert line(player) == " waiting for its turn …"
        player.screen.post_message(facts.Working("reading the prompt", 0.25))
        player.screen.post_message(facts.Grown())
        await player.settle()
        assert line(player) == " reading the prompt 25%"
        answer.grow(Delta("One", (Token(0, "target", 3),)))
        player.screen.post_message(facts.Grown())
        await player.settle()
        assert "1 token" in line(player)
