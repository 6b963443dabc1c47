"""The statistics of a request, as a person reads them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pexpect
import pytest

from localspec.cli.printer import Printer
from localspec.protocol.requests import ProposerStats, Result, Stats
from localspec.wording import stats_lines
from tests.toys import result_of
from tests.waiting import DEADLINE_S

STATS = Stats(
    rounds=40,
    drafted=28,
    accepted=17,
    acceptance_rate=17 / 28,
    tokens_per_round=1.8,
    proposers={
        "prompt-lookup": ProposerStats(20, 12, 0.1),
        "none": ProposerStats(),
        "draft": ProposerStats(8, 5, 0.2),
    },
    choices={"prompt-lookup": 16, "draft": 14, "no draft found": 10},
    time_saved_s=0.25,
    ttft_s=1.25,
    decode_tokens_per_s=45.12,
)


def lines(**changes: object) -> list[str]:
    return stats_lines(result_with(**changes)).split("\n")


def test_messages_that_did_not_fit_are_counted_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    for dropped, said in ((0, ""), (6, "the context is full: the prompt is without 6 old messages.")):
        result = msgspec.structs.replace(result_with(truncated_messages=dropped), finish_reason="stop")
        Printer().result(result)
        assert said in (note := capsys.readouterr().err) and bool(note) == bool(said)


def result_with(**changes: object) -> Result:
    stats = msgspec.structs.replace(STATS, **changes)
    return result_of(stats, finish_reason="context_full", completion_tokens=72)


def test_two_lines_say_it_all() -> None:
    assert lines(exactness="near-ties", rounded_tokens=3) == [
        "72 tokens (context full) · 45.1 tok/s · 250 ms faster than without drafts · first token after 1.2 s",
        "1.80 tokens per round · prompt-lookup 12/20 + draft 5/8 drafted tokens accepted (61%)"
        " · near-ties possible in 3 of 72 tokens",
    ]
    assert lines(exactness="exact")[1].endswith("(61%) · exact")
    assert "model loaded in 2.1 s · first token after 1.2 s" in stats_lines(result_with(), 2.1)


@pytest.mark.parametrize(
    ("saved", "seen"),
    [(-2.04, "2.0 s slower than without drafts"), (0.0, "0 ms faster than without drafts"), (None, "")],
)
def test_time_lost_is_not_passed_over(saved: float | None, seen: str) -> None:
    first = lines(time_saved_s=saved)[0]
    assert seen in first and (bool(seen) or "drafts" not in first)


def test_where_little_was_drafted_the_main_reasons_are_given() -> None:
    choices = {"draft": 8, "rare": 1, "no draft found": 10, "drafting would cost more than it saves": 21}
    assert lines(choices=choices)[1].endswith(
        "no draft in 32 of 40 rounds: drafting would cost more than it saves (21), no draft found (10), "
        "other (1)"
    )
    two = {"draft": 8, "no draft found": 11, "drafting would cost more than it saves": 21}
    assert lines(choices=two)[1].endswith("no draft found (11)")


def test_where_nothing_was_drafted_the_reason_is_given() -> None:
    silent: dict[str, object] = {"drafted": 0, "proposers": {}, "tokens_per_round": 1.0}
    seen = lines(**silent, speculation_off_reason="no draft found")
    assert seen[1] == "1.00 tokens per round · no speculation (no draft found)" and "drafts" not in seen[0]
    assert lines(**silent)[1].endswith("no speculation")


def test_what_ended_speculation_is_said_even_if_it_began_well() -> None:
    assert lines(speculation_off_reason="a proposer failed: x")[1].endswith(" · a proposer failed: x")


PATIENT = """
from localspec.cli import output
output.PATIENCE_S = {patience}
with output.progressing("reading models") as tell:
    input()
    tell("reading toy", 0.5)
    input()
print("done")
"""


def patient(patience: float) -> pexpect.spawn:
    """A stage that takes as long as a test needs, on a terminal."""
    arguments = ["-c", PATIENT.format(patience=patience)]
    return pexpect.spawn(sys.executable, arguments, timeout=DEADLINE_S, encoding="utf-8")


def test_what_takes_long_shows_how_far_it_is() -> None:
    terminal = patient(0.0)
    terminal.expect_exact("reading models 0%")
    terminal.sendline()
    terminal.expect_exact("reading toy 50%")
    terminal.sendline()
    terminal.expect_exact("done")
    terminal.expect(pexpect.EOF)


def test_what_takes_a_moment_shows_nothing() -> None:
    terminal = patient(1000.0)
    terminal.send("\r\r")
    terminal.expect_exact("done")
    assert "reading" not in terminal.before
    terminal.expect(pexpect.EOF)


EVENTS = """
import sys
from localspec.cli.printer import Printer
from localspec.protocol.requests import Delta
sys.stdout = open(sys.argv[1], "w") if sys.argv[1:] else sys.stdout
printer = Printer(events=True)
for stage in ("queued", "loading the target model", "reading the prompt"):
    printer.progress(stage, 0.5)
printer.delta(Delta("text", ()))
"""


@pytest.mark.parametrize("to_file", [False, True])
def test_events_beside_a_live_line_go_to_stdout(tmp_path: Path, *, to_file: bool) -> None:
    """While stderr is a terminal, whether stdout is one or not."""
    words = ["-c", EVENTS, *([str(tmp_path / "events")] if to_file else [])]
    terminal = pexpect.spawn(sys.executable, words, timeout=DEADLINE_S, dimensions=(24, 200))
    terminal.expect(pexpect.EOF)
    shown = terminal.before
    text = (tmp_path / "events").read_bytes() if to_file else shown
    events = [json.loads(line) for line in text.splitlines() if line]
    assert [event["event"] for event in events] == ["progress", "progress", "progress", "delta"]
    assert (b"reading the prompt 50%" in shown) == to_file
