"""Workers take turns on the CPU: on clocks of these tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from localspec.daemon.workers.turns import DEBT_S, GRACE_S, SLICE_S, Turns, TurnShare
from localspec.protocol.frames import GrantTurn
from localspec.protocol.requests import PATIENCE_S


class Machine:
    """A clock, the one call that is due, and workers with the numbers of their turns."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: Callable[[], None] | None = None
        self._turns = Turns(lambda: self.now, self._later)
        self._log: list[str] = []
        self._numbers: dict[TurnShare, int] = {}

    def worker(self, name: str) -> TurnShare:
        def receive(frame: GrantTurn) -> None:
            self._numbers[share] = frame.number
            self._log.append(name if frame.seconds == SLICE_S else f"{name} {frame.seconds:.0f}")

        share = TurnShare(self._turns, receive)
        return share

    def over(self, share: TurnShare, seconds: float = SLICE_S) -> None:
        """Have a worker end its turn."""
        self.now += seconds
        share.over(self._numbers[share], seconds)

    def wait(self) -> None:
        """Have the time pass that others wait for a worker."""
        self.now += SLICE_S + GRACE_S
        assert self.due is not None
        self.due()

    def sent(self) -> list[str]:
        """The workers that got a frame since the last call, with its seconds if these are no slice."""
        found, self._log = self._log, []
        return found

    def _later(self, seconds: float, call: Callable[[], None]) -> Any:
        self.due = call
        return self

    def cancel(self) -> None:
        self.due = None


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def two(machine: Machine) -> tuple[TurnShare, TurnShare]:
    """Two workers with a chat each; it is the turn of the first."""
    first, second = machine.worker("a"), machine.worker("b")
    first.begin("chat")
    second.begin("chat")
    assert machine.sent() == ["b 0", "a"]
    return first, second


def test_a_worker_that_is_alone_gets_no_frame(machine: Machine) -> None:
    share = machine.worker("a")
    for priority in ("chat", "completion"):
        share.begin(priority)
    share.end("completion")
    share.leave()
    assert machine.sent() == [] and machine.due is None


def test_equal_workers_get_equal_time(machine: Machine, two: tuple[TurnShare, TurnShare]) -> None:
    first, second = two
    spent = {first: 0.0, second: 0.0}
    whose = first
    for _ in range(60):
        seconds = SLICE_S * (1.0 if whose is first else 3.0)
        spent[whose] += seconds
        machine.over(whose, seconds)
        whose = first if machine.sent() == ["a"] else second
    assert spent[first] == pytest.approx(spent[second], rel=0.1)


def test_the_last_one_computes_without_turns(machine: Machine, two: tuple[TurnShare, TurnShare]) -> None:
    two[0].end("chat")
    assert machine.sent() == ["b inf"] and machine.due is None
    two[0].begin("chat")
    assert machine.sent() == ["a 0", "b"]


def test_the_end_of_the_holder_begins_the_next_turn(
    machine: Machine, two: tuple[TurnShare, TurnShare]
) -> None:
    third = machine.worker("c")
    third.begin("chat")
    assert machine.sent() == ["c 0"]
    two[0].leave()
    assert machine.sent() in (["b"], ["c"])


def test_a_completion_goes_first_and_a_chat_waits_for_its_patience(
    machine: Machine, two: tuple[TurnShare, TurnShare]
) -> None:
    chat, other = two
    other.begin("completion")
    assert machine.sent() == ["a 0"], "the chat stops after its forward"
    machine.over(chat, 0.0)
    for _ in range(int(PATIENCE_S["chat"] / SLICE_S)):
        assert machine.sent() == ["b"]
        machine.over(other)
    machine.sent()
    machine.over(other)
    assert machine.sent() == ["a"]


def test_a_long_forward_is_waited_for_no_longer_than_its_grace(
    machine: Machine, two: tuple[TurnShare, TurnShare]
) -> None:
    slow, other = two
    machine.wait()
    assert machine.sent() == ["b"]
    machine.over(other)
    assert machine.sent() == ["b"], "the slow one computes still"
    machine.over(slow, 10.0)
    assert machine.sent() == [], "the turn of the other goes on"
    machine.over(other)
    assert machine.sent() == ["b"], "it has had less time"


def test_if_all_compute_the_first_that_waits_goes_on(
    machine: Machine, two: tuple[TurnShare, TurnShare]
) -> None:
    machine.wait()
    machine.wait()
    assert machine.sent() == ["b"]
    machine.over(two[0])
    machine.wait()
    assert machine.sent() == ["a"]


def test_a_newcomer_begins_with_the_least_time_of_the_others(
    machine: Machine, two: tuple[TurnShare, TurnShare]
) -> None:
    for share in 10 * two:
        machine.over(share)
    third = machine.worker("c")
    third.begin("chat")
    machine.sent()
    assert third.spent_s == pytest.approx(10 * SLICE_S)


def test_no_worker_waits_long_for_the_time_that_it_had_before(
    machine: Machine, two: tuple[TurnShare, TurnShare]
) -> None:
    first, second = two
    first.begin("completion")
    for _ in range(100):
        machine.over(first, 1.0)
        machine.wait()
    first.end("completion")
    assert first.spent_s == pytest.approx(second.spent_s + DEBT_S)
    first.end("chat")
    first.begin("chat")
    assert first.spent_s == second.spent_s, "a new contest begins"
