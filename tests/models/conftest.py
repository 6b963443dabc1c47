"""Hostile files and templates must not hang: here they fail instead."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType

import pytest

LIMIT_S = 120
"""far more than any needs, also on a machine that does much else: what hangs takes for ever"""
SLOW_LIMIT_S = 300
"""of what is marked slow: a vocabulary of 256,000 tokens, on a machine that does something else, too"""


def give_up(_signal: int, _frame: FrameType | None) -> None:
    raise AssertionError("this took too long: it hangs")


@pytest.fixture(autouse=True)
def quick(request: pytest.FixtureRequest) -> Iterator[None]:
    if not hasattr(signal, "SIGALRM"):
        yield
        return
    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(SLOW_LIMIT_S if request.node.get_closest_marker("slow") else LIMIT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
