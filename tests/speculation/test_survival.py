"""How often drafts are right: estimates that are right themselves, and follow the request."""

from __future__ import annotations

import json
import random

import pytest

from localspec.speculation.survival import BUCKETS, Calibration, Survival


def test_rates_become_those_of_the_text() -> None:
    survival, rng = Survival((0.7,)), random.Random(2)
    for request in range(20):
        for _ in range(100):
            survival.learn(request, 3, right=rng.random() < 0.2)
        survival.stop(request)
    assert survival.rate(99, 3) == pytest.approx(0.2, abs=0.05)
    assert survival.rate(99, 4) == pytest.approx(0.7)


def test_a_request_that_differs_is_believed_within_it_alone() -> None:
    survival = Survival((0.7,))
    for _ in range(300):
        survival.learn(1, 0, right=True)
    for _ in range(30):
        survival.learn(2, 0, right=False)
    assert survival.rate(2, 0) < 0.25
    assert survival.rate(3, 0) > 0.85


def test_old_texts_fade() -> None:
    survival = Survival((0.5,))
    for _ in range(5000):
        survival.learn(1, 0, right=True)
    for _ in range(600):
        survival.learn(1, 0, right=False)
    survival.stop(1)
    assert survival.rate(2, 0) < 0.3


def test_the_curve_is_the_product() -> None:
    survival = Survival((0.5, 0.8))
    assert survival.curve(1, (0, 1, 1)) == pytest.approx([0.5, 0.4, 0.32])


def test_what_was_learnt_is_kept_for_proposers_that_come_later() -> None:
    calibration = Calibration()
    table = calibration.by_evidence("memory", (0.7,))
    for _ in range(100):
        table.learn(1, 2, right=False)
    again = Calibration()
    again.restore(json.loads(json.dumps(calibration.state())))
    assert again.by_evidence("memory", (0.7,)).rate(9, 2) == table.rate(9, 2)
    # Nobody asked for it here: it is kept for the next run.
    later = Calibration()
    later.restore(again.state())
    assert later.state().keys() == calibration.state().keys()


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"right": [1.0], "all": [1.0]},
        {"right": [2.0] * BUCKETS, "all": [1.0] * BUCKETS},
        {"right": [0.0] * BUCKETS, "all": [0.0] * BUCKETS},
        {"right": ["x"] * BUCKETS, "all": [1.0] * BUCKETS},
        {"right": [float("nan")] * BUCKETS, "all": [1.0] * BUCKETS},
    ],
)
def test_a_spoilt_record_is_refused(table: dict[str, object]) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        Calibration().restore({"draft": table})
