"""The heartbeat of a worker: what the daemon hears over a real socket pair while the worker is at work."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import BinaryIO

import pytest

import localspec
from localspec.models.catalogue import bundled_model
from localspec.models.model import model_at
from localspec.protocol.frames import Heartbeat
from localspec.worker.channel import Channel, Pulse
from localspec.worker.loop import READ_PER_S, TOGETHER, slowest_step
from tests.waiting import DEADLINE_S
from tests.worker.test_channel import read


@pytest.fixture
def ends() -> Iterator[tuple[Pulse, BinaryIO]]:
    """A pulse, and what the daemon reads."""
    ours, theirs = socket.socketpair()
    ours.settimeout(DEADLINE_S)
    with ours, ours.makefile("rb") as stream:
        # An hour: it would end this process.
        yield Pulse(Channel(theirs, exit_s=3600.0)), stream


def beat(stream: BinaryIO) -> Heartbeat:
    frame = read(stream)
    assert isinstance(frame, Heartbeat)
    return frame


def test_it_tells_of_steps_while_there_is_work(ends: tuple[Pulse, BinaryIO]) -> None:
    pulse, stream = ends
    with pulse.busy():
        assert beat(stream).steps == 0
        assert pulse.step(lambda: True) and not pulse.step(lambda: False)
        while beat(stream).steps < 2:
            pass


def test_a_step_under_way_does_not_stop_it(ends: tuple[Pulse, BinaryIO]) -> None:
    pulse, stream = ends

    def step() -> bool:
        """Ends after two more beats."""
        found.extend((beat(stream), beat(stream)))
        return True

    found: list[Heartbeat] = []
    with pulse.busy():
        pulse.step(step)
        assert {each.steps for each in found} == {0}
        while (last := beat(stream)).steps < 1:
            pass
        assert last.predicted_s > 0.5, "two beats are a second apart"


def test_what_is_expected_is_sent_and_the_longest_step_forgotten(ends: tuple[Pulse, BinaryIO]) -> None:
    pulse, stream = ends
    pulse.expected_s = 7.5
    with pulse.busy():
        assert beat(stream).predicted_s == 7.5


def test_the_first_prediction_goes_by_what_is_known_of_the_model() -> None:
    with localspec.load(n_ctx=256, parallel=1) as engine:
        path = bundled_model("stdlib-6m")
        tokens = engine.target.capabilities.max_batch / TOGETHER
        guess = slowest_step(engine, model_at(path))
        known = engine.learning.costs.list_measured(512).get(1)
        expected = known if known is not None else path.stat().st_size / READ_PER_S
        assert guess == pytest.approx(tokens * expected)
        assert 0 < 20 * guess < 30, "a small model has no more than the usual limit"
