"""Workers are given up by their missing heartbeats: on clocks of these tests."""

from __future__ import annotations

import pytest

from localspec.daemon.workers.worker import Watch


@pytest.fixture
def watch() -> Watch:
    return Watch(30.0, now=0.0)


def test_a_worker_that_steps_is_never_given_up(watch: Watch) -> None:
    for second in range(1000):
        watch.beat(second, 0.0, float(second))
        assert watch.still_s(float(second), loading=False) is None


def test_heartbeats_alone_are_no_work(watch: Watch) -> None:
    for second in range(41):
        watch.beat(7, 0.1, float(second))
    assert watch.still_s(30.0, loading=False) is None
    assert watch.still_s(40.0, loading=False) == 40.0


def test_a_step_may_take_twenty_times_what_was_predicted(watch: Watch) -> None:
    for second in range(101):
        watch.beat(7, 5.0, float(second))
    assert watch.still_s(100.0, loading=False) is None
    watch.beat(7, 5.0, 101.0)
    assert watch.still_s(101.0, loading=False) == 101.0


def test_a_stopped_worker_does_not_profit_from_a_prediction(watch: Watch) -> None:
    watch.beat(7, 500.0, 10.0)
    assert watch.still_s(40.0, loading=False) is None
    assert watch.still_s(40.5, loading=False) == 30.5


def test_new_work_and_every_frame_begin_the_count_anew(watch: Watch) -> None:
    watch.note_move(1000.0)
    assert watch.still_s(1029.0, loading=False) is None
    assert watch.still_s(1031.0, loading=False) == 31.0


def test_a_load_may_be_still_for_long_and_silent_for_a_while(watch: Watch) -> None:
    assert watch.still_s(119.0, loading=True) is None
    assert watch.still_s(121.0, loading=True) == 121.0
    for second in range(0, 601, 10):
        watch.beat(0, 0.0, float(second))
        assert watch.still_s(float(second), loading=True) is None
    watch.beat(0, 0.0, 601.0)
    assert watch.still_s(601.0, loading=True) == 601.0
    watch.note_move(601.0)
    assert watch.still_s(602.0, loading=True) is None


def test_time_in_which_the_daemon_itself_stood_still_does_not_count(watch: Watch) -> None:
    watch.beat(1, 0.0, 5.0)
    watch.away(3600.0)
    assert watch.still_s(3630.0, loading=False) is None
    assert watch.still_s(3636.0, loading=False) == 31.0
