"""The end of requests at their deadlines, complete or not."""

from __future__ import annotations

import time

from msgspec.structs import replace

from localspec.protocol.requests import Result
from tests.toy import markov
from tests.toys import request, run_all, toy_engine
from tests.waiting import until_sync


def test_a_deadline_is_an_ending_with_the_text_so_far() -> None:
    engine = toy_engine(markov())
    sequence = engine.submit(request("ab", temperature=0.0))
    engine.step()
    sequence.deadline = 0.0
    run_all(engine, [sequence])
    result = sequence.events[-1]
    assert isinstance(result, Result) and result.finish_reason == "deadline" and result.completion_tokens


def test_before_the_first_token_and_from_then_on_there_are_deadlines_of_their_own() -> None:
    engine, limited = toy_engine(markov()), {"max_prompt_ms": 600_000, "max_predict_ms": 1}
    sequence = engine.submit(replace(request("ab", temperature=0.0), **limited))
    patient = sequence.deadline
    assert patient > time.monotonic() + 500
    engine.step()
    assert sequence.prefilled and sequence.deadline < patient
    until_sync(lambda: time.monotonic() > sequence.deadline, "the time is over")
    run_all(engine, [sequence])
    result = sequence.events[-1]
    assert isinstance(result, Result) and result.finish_reason == "deadline"
    assert 1 <= result.completion_tokens <= 2


def test_a_prompt_that_is_not_read_in_time_gives_nothing() -> None:
    engine = toy_engine(markov())
    sequence = engine.submit(replace(request("ab"), max_prompt_ms=1, max_ms=600_000))
    until_sync(lambda: time.monotonic() > sequence.deadline, "the time is over")
    run_all(engine, [sequence])
    result = sequence.events[-1]
    assert isinstance(result, Result)
    assert (result.finish_reason, result.completion_tokens) == ("deadline", 0)
