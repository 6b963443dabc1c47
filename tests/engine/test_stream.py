"""The ends of requests: a stream that is dropped costs others nothing; a deadline leaves the text so far."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from localspec.engine.engine import Engine
from localspec.errors import EngineError
from localspec.protocol.requests import Result
from tests.toy import ToyBackend, markov
from tests.toys import request, run_all, toy_engine
from tests.waiting import until_sync


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine(ToyBackend(markov(), n_ctx=256, max_sequences=4)) as one:
        yield one


def test_a_dropped_stream_cancels_its_request_without_the_garbage_collector(engine: Engine) -> None:
    gc.disable()
    try:
        for _ in engine.generate("abc", temperature=0.0, max_tokens=50):
            break
        stream = engine.generate("abd", temperature=0.0, max_tokens=50)
        chunks = iter(stream)
        next(chunks)
        del stream, chunks
        engine.step()
        assert not engine._scheduler.busy
    finally:
        gc.enable()


def test_dropped_streams_cost_other_requests_nothing(engine: Engine) -> None:
    expected = engine.generate("abc", temperature=0.0, max_tokens=30).finish().text
    for number in range(50):
        whole = engine.generate("abc", temperature=0.0, max_tokens=30)
        dropped = [engine.generate(f"ab{number}", temperature=0.0, max_tokens=30) for _ in range(3)]
        text = ""
        for chunk in whole:
            text += chunk.text
            if dropped:
                next(iter(dropped.pop()))
        assert text == expected == whole.result.text
    engine.step()
    assert not engine._scheduler.busy


def test_a_closed_stream_has_ended(engine: Engine) -> None:
    stream = engine.generate("abc", temperature=0.0, max_tokens=30)
    next(iter(stream))
    stream.close()
    stream.close()
    assert list(stream) == [] and not engine._scheduler.busy


def test_an_error_comes_once(engine: Engine) -> None:
    stream = engine.generate("abc", temperature=0.0, max_tokens=30)
    engine.close()
    with pytest.raises(EngineError, match="closed before the request ended"):
        stream.finish()
    assert list(stream) == []


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
