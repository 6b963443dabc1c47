"""Facts in words: when something was, and what of a text is shown."""

from __future__ import annotations

from datetime import datetime

import pytest

from localspec.protocol.messages import Placement
from localspec.wording import describe_placement, describe_time, one_line, printable, underway

NOW = datetime(2026, 3, 1, 15, 30)


@pytest.mark.parametrize(
    ("then", "told"),
    [
        (datetime(2026, 3, 1, 15, 31), "just now"),  # clocks differ
        (datetime(2026, 3, 1, 15, 29, 1), "just now"),
        (datetime(2026, 3, 1, 15, 29), "1 min ago"),
        (datetime(2026, 3, 1, 14, 30, 1), "59 min ago"),
        (datetime(2026, 3, 1, 14, 30), "1 h ago"),
        (datetime(2026, 3, 1, 0, 0), "15 h ago"),
        (datetime(2026, 2, 28, 23, 59), "yesterday"),
        (datetime(2026, 2, 28, 0, 0), "yesterday"),
        (datetime(2026, 2, 27, 23, 59), "2026-02-27"),
        (datetime(2024, 2, 29), "2024-02-29"),
    ],
)
def test_a_moment_is_shown_by_its_age(then: datetime, told: str) -> None:
    assert describe_time(then.timestamp(), NOW.timestamp()) == told


def test_what_commands_the_terminal_is_not_shown() -> None:
    text = "a\x1b[2J\x9b\r \u202egnp\u2066 \udcff\tb\nc"
    assert printable(text) == "a\ufffd[2J\ufffd\ufffd \ufffdgnp\ufffd ?\tb\nc"
    assert one_line("a\tb\nc\u2028d") == "a\ufffdb\ufffdc\ufffdd"


def test_a_model_that_is_loaded_in_full_is_warming_up() -> None:
    assert underway("loading toy", 0.99) == ("loading toy", 0.99)
    assert underway("loading toy", 1.0) == ("warming up toy", None)
    assert underway("reading the prompt", 1.0) == ("reading the prompt", 1.0)


def test_the_place_of_a_model_names_each_kind_of_gpu_once() -> None:
    two = ("NVIDIA H200", "NVIDIA H200")
    assert describe_placement(Placement(two, 25, 25)) == "all layers on NVIDIA H200"
    assert describe_placement(Placement(("A", "B"), 8, 25)) == "8 of 25 layers on A, B"
    assert describe_placement(Placement(two, 25, 25, 3)) == (
        "all layers on NVIDIA H200, the experts of 3 on the CPU"
    )
