"""A long forward is preempted for a request of a higher class, and nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import pytest

from localspec.backends.base import Interrupted, Span
from localspec.engine.engine import PATIENT, Engine, Preemption
from localspec.protocol.options import Options
from localspec.protocol.requests import FimPrompt, Request, Result, TextPrompt
from tests.toy import ToyBackend, ToyLogits, markov
from tests.toys import run_all

SHORT = Options(max_tokens=4, temperature=0.0)


class Hooked(ToyBackend):
    """Calls ``during`` in the middle of every forward of a piece of a prompt."""

    def during(self) -> None:
        return

    def forward(self, batch: Seq[Span]) -> ToyLogits:
        if len(batch[0].tokens) > 9:
            self.during()
        return super().forward(batch)


def test_a_piece_of_a_prompt_is_given_up_and_read_again() -> None:
    model = Hooked(markov(), n_ctx=2048)
    engine = Engine(model)
    alone = Engine(ToyBackend(markov(), n_ctx=2048)).generate("x" * 600, max_tokens=4, temperature=0.0)
    expected = alone.finish().text
    chat = engine.submit(Request(prompt=TextPrompt("x" * 600), options=SHORT))
    model.during = engine.preempt  # type: ignore[method-assign]
    engine.step()
    assert model.length(chat.slot) == 0
    model.during = lambda: None  # type: ignore[method-assign]
    completion = engine.submit(Request(prompt=FimPrompt("ab", ""), options=SHORT, priority="completion"))
    engine.step()
    assert completion.prefilled and not chat.prefilled
    run_all(engine, [chat, completion])
    assert isinstance(result := chat.events[-1], Result) and result.text == expected


def test_a_prompt_is_read_in_the_end_however_often_it_is_preempted() -> None:
    model = Hooked(markov(), n_ctx=2048)
    engine = Engine(model)
    chat = engine.submit(Request(prompt=TextPrompt("x" * 300), options=SHORT))
    model.during = engine.preempt  # type: ignore[method-assign]
    steps = 0
    while not chat.prefilled:
        engine.step()
        steps += 1
    assert steps <= 2 * (PATIENT + 2)


def test_a_round_is_never_given_up() -> None:
    model = ToyBackend(markov())
    engine = Engine(model)
    sequence = engine.submit(Request(prompt=TextPrompt("ab"), options=SHORT))
    engine.step()
    engine.preempt()
    engine.step()
    assert sequence.completion_tokens == 2


def test_what_is_not_heeded_does_not_reach_the_backend() -> None:
    model = ToyBackend(markov())
    preemption = Preemption(model)
    preemption.request()
    with pytest.raises(Interrupted), preemption.allow_preemption():
        raise AssertionError("a request had come before")
    with preemption.allow_preemption():
        pass
    sequence = model.open()
    model.forward([Span(sequence, [65], 1)])
