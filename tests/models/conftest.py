"""Hostile files and templates must not hang: here they fail instead."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType

import pytest

LIMIT_S = 20


def give_up(_signal: int, _frame: FrameType | None) -> None:
    raise AssertionError(f"this took longer than {LIMIT_S} s")


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    if not hasattr(signal, "SIGALRM"):
        yield
        return
    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(LIMIT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
