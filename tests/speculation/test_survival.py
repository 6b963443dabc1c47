"""Estimates of drafts' survival: they are right, and follow the request."""

from __future__ import annotations

import json
import random

import pytest

from localspec.speculation.controller import BUCKETS, Calibration, Survival


def test_rates_become_those_of_the_text() -> None:
    survival, rng = Survival((0.7,)), random.Random(2)
    for request in range(20):
        for _ in range(100):
            survival.learn(request, 3, right=rng.random() < 0.2)
        survival.stop(request)
    # A new request is trusted somewhat less than the average one.
    assert 0.1 < survival.rate(99, 3) < 0.2
    assert 0.55 < survival.rate(99, 4) < 0.7


def test_a_long_text_is_one_witness_among_many() -> None:
    survival = Survival((0.5,))
    for request in range(30):
        survival.learn(request, 0, right=False)
        survival.stop(request)
    for _ in range(5000):
        survival.learn(99, 0, right=True)
    survival.stop(99)
    assert survival.rate(100, 0) < 0.3


def test_what_one_evidence_shows_is_believed_of_the_others_too() -> None:
    """In a text that does not repeat itself, long matches are worth less as well."""
    survival = Survival((0.5, 0.9))
    before = survival.rate(1, 1)
    for _ in range(8):
        survival.learn(1, 0, right=False)
    assert survival.rate(1, 1) < before - 0.2


def test_a_request_that_differs_is_believed_within_it_alone() -> None:
    survival = Survival((0.7,))
    for request in range(20):
        for _ in range(30):
            survival.learn(request, 0, right=True)
        survival.stop(request)
    for _ in range(30):
        survival.learn(99, 0, right=False)
    assert survival.rate(99, 0) < 0.3
    assert survival.rate(100, 0) > 0.9


def test_old_texts_fade() -> None:
    survival = Survival((0.5,))
    for request in range(400):
        for _ in range(10):
            survival.learn(request, 0, right=request < 300)
        survival.stop(request)
    assert survival.rate(999, 0) < 0.1
    for request in range(400, 600):  # without a draft
        survival.stop(request)
    assert survival.rate(999, 0) > 0.3


def test_the_curve_is_the_product() -> None:
    survival = Survival((0.5, 0.8))
    first, second = survival.rate(1, 0), survival.rate(1, 1)
    assert survival.curve(1, (0, 1, 1)) == pytest.approx([first, first * second, first * second**2])


def test_what_was_learnt_is_kept_for_proposers_that_come_later() -> None:
    calibration = Calibration()
    table = calibration.by_evidence("memory", (0.7,))
    for _ in range(100):
        table.learn(1, 2, right=False)
    table.stop(1)
    again = Calibration()
    again.restore(json.loads(json.dumps(calibration.state())))
    assert again.by_evidence("memory", (0.7,)).rate(9, 2) == table.rate(9, 2)
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
