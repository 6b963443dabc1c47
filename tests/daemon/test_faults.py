"""Faults of the real daemon with real models, once each: those that take about a second.

All of them, and again and again: tests/slow/test_faults.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.slow.faults import FAULTS, Fault, play
from tests.slow.scene import Scene, Skipped
from tests.waiting import run

QUICK = (
    "worker gets SIGKILL",
    "daemon is killed",
    "client vanishes",
)


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    scene = Scene(seed=7)
    yield scene
    scene.close()


@pytest.mark.slow
@pytest.mark.parametrize("fault", [f for f in FAULTS if f.name in QUICK], ids=lambda fault: fault.name)
def test_it_is_survived(scene: Scene, fault: Fault) -> None:
    try:
        run(play(scene, fault))
    except Skipped as why:
        pytest.skip(str(why))


def test_the_quick_ones_are_there() -> None:
    names = [fault.name for fault in FAULTS]
    assert set(QUICK) <= set(names) and len(names) == len(set(names)) >= 15
