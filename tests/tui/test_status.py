"""The status line and the bar in its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.errors import LocalspecError
from localspec.protocol.results import ProposerStats, Stats, Token
from localspec.protocol.sessions import Pairing
from localspec.tui import facts
from localspec.tui.conversation import Answer, Question
from localspec.tui.widgets.progress import Progress
from localspec.tui.widgets.pulse import bars
from localspec.tui.widgets.status import Status
from tests.tui.harness import Player
from tests.tui.showing import PAIRING, answered, conversation, growing, show, showing


def status(stats: Stats | None = None, *, private: bool = False) -> Status:
    """A status line of an answer that has ended."""
    line = Status()
    line.pairing, line.private = PAIRING, private
    answer = answered()
    if stats is not None and answer.result is not None:
        answer.result.stats = stats
    line.show(answer)
    return line


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (100, "stdlib-6m · draft stdlib-1m · auto: draft + lookup · 212 tok/s · 74% accepted · 1.2 s saved"),
        (80, "stdlib-6m · auto: draft + lookup · 212 tok/s · 74% accepted · 1.2 s saved"),
        (60, "stdlib-6m · 212 tok/s · 74% accepted · 1.2 s saved"),
        (40, "stdlib-6m · 212 tok/s · 74% accepted"),
        (25, "stdlib-6m · 212 tok/s"),
        (12, "212 tok/s"),
        (3, "212 tok/s"),
    ],
)
def test_what_matters_least_goes_first(columns: int, shown: str) -> None:
    assert status().line(columns) == shown


def test_a_private_chat_says_so_wherever_it_is_shown() -> None:
    assert status(private=True).line(100).startswith("private · stdlib-6m")
    assert status(private=True).line(7) == "private"


def test_why_there_was_no_speculation() -> None:
    line = status(Stats(decode_tokens_per_s=80.0, speculation_off_reason="drafts cost more than they save"))
    assert line.line(100).endswith("80 tok/s · drafts cost more than they save")


def test_figures_of_another_model_are_left_out() -> None:
    line, answer = Status(), answered()
    answer.model, line.pairing = PAIRING.target, Pairing("another", None, "auto", "llama.cpp", "")
    line.show(answer)
    assert line.line(100) == "another · auto"


def test_time_that_was_lost() -> None:
    assert (
        status(Stats(drafted=9, acceptance_rate=0.0, time_saved_s=-0.04)).line(100).endswith("40 ms slower")
    )


def test_an_answer_that_grows_is_told_twice_a_second() -> None:
    now = 0.0
    line = Status(clock=lambda: now)
    answer = growing("one two", "target 1, draft 3 1")
    line.show(answer)
    assert line.line(100) == "5 tokens · 60% drafted"
    answer.grow("!", [Token(0, "target", 1)])
    line.show(answer)
    assert line.line(100) == "5 tokens · 60% drafted"
    now = 0.5
    line.show(answer)
    assert line.line(100) == "6 tokens · 50% drafted"
    answer.status = "complete"
    line.show(answer)
    assert line.line(100) == ""


def test_who_drafts_is_told_while_an_answer_grows() -> None:
    now = 0.0
    line = Status(clock=lambda: now)
    line.pairing = Pairing("stdlib-6m", None, "auto", "llama.cpp", "")
    answer = growing("one", "target 1")

    def told() -> str:
        nonlocal now
        now += 0.5
        line.show(answer)
        return line.line(100)

    assert told() == "stdlib-6m · auto · 1 token"
    answer.grow("", [Token(0, "prompt-lookup", 0), Token(0, "target", 0)])
    assert told() == "stdlib-6m · auto: lookup · 3 tokens · 33% drafted"
    answer.grow("", [Token(0, "memory", 0), Token(0, "target", 0), Token(0, "target", 0)])
    assert told() == "stdlib-6m · auto: memory · 6 tokens · 33% drafted"
    line.pairing = Pairing("stdlib-6m", None, "memory", "llama.cpp", "")
    assert told() == "stdlib-6m · memory · 6 tokens · 33% drafted"


def test_who_drafted_is_told_once_an_answer_has_ended() -> None:
    proposers = {"draft": ProposerStats(drafted=0), "memory": ProposerStats(drafted=3, accepted=1)}
    line = status(Stats(decode_tokens_per_s=80.0, proposers=proposers))
    assert line.line(100) == "stdlib-6m · draft stdlib-1m · auto: memory · 80 tok/s"
    line.show(Answer("stored before"))
    assert line.line(100) == "stdlib-6m · draft stdlib-1m · auto"


@pytest.mark.slow
async def test_a_daemon_that_is_gone_is_told_until_one_answers(still: Path) -> None:
    async with showing(conversation()) as player:
        player.screen.post_message(facts.ConnectionLost())
        player.screen.show_error(LocalspecError("nothing", "Do nothing."))
        await player.settle()
        assert any("no connection to the daemon" in line for line in player.lines())
        player.screen.post_message(facts.Connected(again=True))
        await player.settle()
        assert any("212 tok/s" in line for line in player.lines())


def bar(player: Player) -> str:
    """The line on which the bar is."""
    return player.lines()[player.screen.query_one(Progress).region.y]


@pytest.mark.slow
async def test_what_takes_a_while_has_a_bar_in_the_place_of_the_status(still: Path) -> None:
    async with showing(conversation()) as player:
        player.screen.post_message(facts.Working("loading the target model", 0.25))
        await player.settle()
        assert bar(player) == f" loading the target model {'━' * 10}{'╌' * 30}  25%"
        assert not player.screen.query_one(Status).display
        player.screen.post_message(facts.Working("waiting for its turn", None))
        await player.settle()
        assert bar(player) == " waiting for its turn …"
        player.screen.post_message(facts.Connected(again=False))
        await player.settle()
        assert not player.screen.query_one(Progress).display
        assert any("212 tok/s" in line for line in player.lines())


async def test_a_prompt_is_read_until_the_first_token_comes(still: Path) -> None:
    async with showing(size=(60, 20)) as player:
        answer = Answer(status="streaming")
        show(player, [Question("A long one."), answer])
        player.screen.post_message(facts.Working("reading the prompt", 1.0))
        player.screen.post_message(facts.Grown())
        await player.settle()
        assert bar(player).endswith("━ 100%") and len(bar(player)) <= 60
        answer.grow("One", [Token(0, "target", 3)])
        player.screen.post_message(facts.Grown())
        await player.settle()
        assert not player.screen.query_one(Progress).display


def test_rounds_are_bars_of_eight_tokens_or_the_most() -> None:
    assert bars([1, 2, 4, 8], 10) == "▁▂▄█"
    assert bars([1, 8, 16], 10) == "▁▄█"
    assert bars([8, 1, 2], 2) == "▁▂"
    assert bars([0, 1], 10) == "▁▁"
