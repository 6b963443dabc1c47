"""The next request to serve, and its price; time is set by the tests."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from localspec.backends.base import Span
from localspec.engine.engine import Scheduler
from localspec.engine.prefixes import Prefixes
from localspec.engine.prompt import Encoded
from localspec.engine.sequence import Sequence, SequenceLimits
from localspec.engine.settings import settle
from localspec.errors import EngineError
from localspec.protocol.options import Options
from localspec.protocol.requests import CLASSES, Priority, Request, TextPrompt
from localspec.speculation.costs import CostCurve
from tests.toy import ToyBackend, markov

DEAR = {1: 1.0, 2: 2.4, 3: 2.7, 4: 3.4, 8: 4.4, 16: 6.8}
"""a processor on which two rows cost more than twice one, and four little more than two"""
CHEAP = {1: 1.0, 2: 1.03, 3: 1.06, 4: 1.1, 8: 1.3, 16: 1.6}
"""a device that waits for memory"""


def curve(ratios: dict[int, float]) -> CostCurve:
    costs = CostCurve()
    for _ in range(4):
        for width, ratio in ratios.items():
            costs.observe(width, 0, 0.01 * ratio)
    return costs


class Stage:
    """A scheduler over a toy, and requests that prefill or decode as the test sets."""

    def __init__(
        self, ratios: dict[int, float] = DEAR, *, max_sequences: int = 8, batches: bool = True
    ) -> None:
        self.backend = ToyBackend(markov(), max_sequences=max_sequences)
        self.backend.capabilities = replace(self.backend.capabilities, batches=batches)
        self.scheduler = Scheduler(self.backend, curve(ratios), Prefixes(self.backend))
        self.made = 0

    def add(self, priority: Priority = "chat", *, prefilled: bool = True, width: float = 1.0) -> Sequence:
        self.made += 1
        prompt = TextPrompt("x")
        settings = settle(Options(temperature=0.0), prompt, Options())
        encoded, words = Encoded([*b"a prompt", self.made], frozenset()), self.backend.vocabulary
        limits = SequenceLimits(512, 256)
        sequence = Sequence(self.made, Request(prompt=prompt), settings, encoded, words, limits)
        sequence.priority, sequence.account.width = priority, width
        if prefilled:
            sequence.tokens.append(65)
        self.scheduler.waiting.append(sequence)
        return sequence

    def serve(self, steps: int, cost: float = 1.0) -> Counter[int]:
        """Run steps; return the number of times that each sequence was served."""
        served: Counter[int] = Counter()
        for _ in range(steps):
            self.scheduler.admit()
            group = self.scheduler.next()
            served.update(s.id for s in group)
            self.scheduler.charge(group, cost)
        return served

    def retire(self) -> list[Sequence]:
        """Those that have ended."""
        ended: list[Sequence] = []
        self.scheduler.retire(ended.append)
        return ended


def test_equals_get_equal_time_whatever_a_step_of_each_costs() -> None:
    stage = Stage()
    long, chat = stage.add(prefilled=False), stage.add()
    stage.scheduler.admit()
    time = {long.id: 0.0, chat.id: 0.0}
    for _ in range(110):
        (one,) = stage.scheduler.next()
        cost = 1.0 if one is long else 0.1
        time[one.id] += cost
        stage.scheduler.charge([one], cost)
    assert abs(time[long.id] - time[chat.id]) <= 1.0


def test_a_late_request_does_not_get_the_time_before_it() -> None:
    stage = Stage()
    first = stage.add()
    stage.serve(50)
    second = stage.add()
    served = stage.serve(20)
    assert abs(served[first.id] - served[second.id]) <= 1


def test_a_completion_goes_before_chats_and_those_before_what_can_wait() -> None:
    stage = Stage()
    background, chat = stage.add("background"), stage.add("chat")
    stage.scheduler.admit()
    assert stage.scheduler.next() == [chat]
    completion = stage.add("completion", prefilled=False)
    stage.scheduler.admit()
    assert stage.scheduler.next() == [completion]
    completion.finish = chat.finish = "stop"
    assert stage.scheduler.next() == [background]


def test_a_request_that_has_waited_too_long_gets_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("localspec.engine.engine.time.monotonic", lambda: now)
    stage = Stage()
    chat, completion = stage.add("chat"), stage.add("completion")
    stage.scheduler.admit()
    assert stage.scheduler.next() == [completion]
    stage.scheduler.charge([completion], 0.1)
    now += 0.3
    assert stage.scheduler.next() == [chat]
    stage.scheduler.charge([chat], 0.1)
    assert stage.scheduler.next() == [completion]


def test_a_client_with_many_requests_waits_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece of 256 tokens that takes two seconds does not come between the rounds of a completion."""
    now = 100.0
    monkeypatch.setattr("localspec.engine.engine.time.monotonic", lambda: now)
    stage = Stage({1: 1.0, 256: 200.0})
    chat, completion = stage.add("chat", prefilled=False), stage.add("completion")
    stage.scheduler.admit()
    now += 1.9
    assert stage.scheduler.next() == [completion]
    now += 0.2
    assert stage.scheduler.next() == [chat]


class TestSharing:
    def test_two_plain_rows_are_decoded_in_turn_where_both_cost_more_than_twice_one(self) -> None:
        stage = Stage(DEAR)
        one, other = stage.add(), stage.add()
        stage.scheduler.admit()
        assert len(stage.scheduler.next()) == 1
        assert stage.serve(10) == {one.id: 5, other.id: 5}

    @pytest.mark.parametrize(
        ("stage", "number", "width", "together"),
        [
            pytest.param(Stage(DEAR), 4, 1.0, 4, id="four where two would not"),
            pytest.param(Stage(DEAR), 2, 4.0, 2, id="those that draft"),
            pytest.param(Stage(CHEAP, batches=False), 2, 1.0, 1, id="none that are computed one by one"),
        ],
    )
    def test_a_step_is_shared(self, stage: Stage, number: int, width: float, together: int) -> None:
        for _ in range(number):
            stage.add(width=width)
        stage.scheduler.admit()
        assert len(stage.scheduler.next()) == together

    def test_a_chat_joins_a_completion_only_where_it_hardly_holds_it_up(self) -> None:
        for ratios, together in ((DEAR, 1), (CHEAP, 2)):
            stage = Stage(ratios)
            stage.add("chat")
            completion = stage.add("completion")
            stage.scheduler.admit()
            group = stage.scheduler.next()
            assert group[0] is completion and len(group) == together

    def test_slots_between_those_that_share_a_round_cost_rows_too(self) -> None:
        stage = Stage({1: 1.0, 2: 1.2, 3: 1.4, 4: 1.6, 5: 4.0, 8: 8.0})
        stage.backend.capabilities = replace(stage.backend.capabilities, consecutive=True)
        requests = [stage.add(prefilled=number not in (2, 3)) for number in range(5)]
        stage.scheduler.admit()
        assert stage.scheduler.next() == requests[:2]

    def test_a_prompt_is_read_alone(self) -> None:
        stage = Stage(CHEAP)
        reading = stage.add(prefilled=False)
        stage.add()
        stage.scheduler.admit()
        assert stage.scheduler.next() == [reading]


class TestSlots:
    def test_a_completion_takes_the_slot_of_the_chat_that_has_had_most(self) -> None:
        stage = Stage(max_sequences=2)
        modest, greedy = stage.add(), stage.add()
        stage.scheduler.admit()
        stage.scheduler.charge([greedy], 9.0)
        completion = stage.add("completion")
        assert stage.scheduler.admit() == [greedy]
        assert stage.scheduler.running == [modest, completion] and greedy.state is not None
        completion.finish = "stop"
        stage.retire()
        assert stage.scheduler.admit() == []
        assert greedy in stage.scheduler.running and greedy.state is None

    def test_what_a_suspended_request_held_is_there_again(self) -> None:
        stage = Stage(max_sequences=1)
        chat = stage.add()
        stage.scheduler.admit()
        stage.backend.forward([Span(chat.slot, chat.tokens[:5], 0)])
        held = stage.backend.tokens(chat.slot)
        completion = stage.add("completion")
        stage.scheduler.admit()
        assert stage.scheduler.running == [completion]
        completion.finish = "stop"
        stage.retire()
        stage.scheduler.admit()
        assert stage.backend.tokens(chat.slot) == held

    def test_waiting_requests_are_not_examined_one_by_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stage = Stage(max_sequences=1)
        stage.add("completion")
        stage.scheduler.admit()
        for priority in CLASSES * 30:
            stage.add(priority)
        looks: list[Priority] = []
        victim = stage.scheduler._victim

        def look(priority: Priority) -> Sequence | None:
            looks.append(priority)
            return victim(priority)

        monkeypatch.setattr(stage.scheduler, "_victim", look)
        assert stage.scheduler.admit() == [] and len(looks) <= len(CLASSES)

    def test_a_cache_that_cannot_be_saved_is_tried_once_a_step(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stage, tried = Stage(max_sequences=1), list[int]()

        def save(slot: int) -> bytearray:
            tried.append(slot)
            raise EngineError("it cannot be saved")

        monkeypatch.setattr(stage.backend, "save", save)
        chat = stage.add("chat")
        stage.scheduler.admit()
        for _ in range(30):
            stage.add("completion")
        assert stage.scheduler.admit() == [] and stage.scheduler.running == [chat]
        assert tried == [chat.slot]

    def test_a_suspended_request_that_is_cancelled_leaves_nothing(self) -> None:
        stage = Stage(max_sequences=1)
        chat = stage.add()
        stage.scheduler.admit()
        stage.add("completion")
        stage.scheduler.admit()
        chat.finish = "cancelled"
        assert stage.retire() == [chat]
        assert chat.state is None and stage.backend.open_sequences == 1


@pytest.mark.parametrize(("priority", "most"), [("chat", 5), ("background", 17)])
@pytest.mark.parametrize("saves", [True, False])
@pytest.mark.parametrize("slots", [1, 2])
def test_waiting_is_bounded_however_many_completions_come(
    monkeypatch: pytest.MonkeyPatch, priority: Priority, most: int, saves: bool, slots: int
) -> None:
    """By counts: always one more completion than slots, each done after one step."""
    now = 100.0
    monkeypatch.setattr("localspec.engine.engine.time.monotonic", lambda: now)
    stage = Stage(max_sequences=slots)
    stage.backend.capabilities = replace(stage.backend.capabilities, saves=saves)
    completions = [stage.add("completion") for _ in range(slots + 1)]
    patient = stage.add(priority)
    since, served, ended = 0, 0, 0
    for _ in range(200):
        now += 0.2
        stage.scheduler.admit()
        group = stage.scheduler.next()
        stage.scheduler.charge(group, 0.001)
        if patient in group:
            since, served = 0, served + 1
        for one in group:
            if one in completions:
                one.finish, since, ended = "stop", since + 1, ended + 1
                completions.remove(one)
                completions.append(stage.add("completion"))
        stage.retire()
        assert since <= most + slots
    assert served >= 200 // (most + slots + 2) and (ended > served or not saves)
