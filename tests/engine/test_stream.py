"""A stream that is closed or dropped cancels its request, and costs no other request anything."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from localspec.engine.engine import Engine
from localspec.errors import EngineError
from tests.toy import ToyBackend, markov


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
