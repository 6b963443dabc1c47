"""Ctrl-C at any point of a request, in process: what is cached is right, or not there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from localspec.backends.base import Backend
from localspec.backends.llama_cpp.backend import LlamaCppBackend
from localspec.backends.toy import ToyBackend, markov
from localspec.config import EngineConfig
from localspec.engine.engine import Engine
from localspec.models.catalogue import BUNDLED_TARGET, bundled_model
from tests.parity.play import emptied

PROMPT = "def f(x):\n    return x\n\n\ndef g(x):\n    return f(x) + f(x)\n"
PLACES = ("backend.py", "toy.py", "sequences.py", "round.py", "exactness.py", "sequence.py")


class At:
    """Raises KeyboardInterrupt at the n-th line that is run in a round or its forward."""

    def __init__(self, n: int) -> None:
        self.left = n

    def __call__(self, frame: FrameType, event: str, _: Any) -> At | None:
        if not frame.f_code.co_filename.endswith(PLACES):
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self


@pytest.fixture(params=["toy", "llama_cpp"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    if request.param == "toy":
        yield ToyBackend(markov(), n_ctx=1024)
        return
    config = EngineConfig(n_ctx=512, parallel=2, threads=1)
    real = LlamaCppBackend(bundled_model(BUNDLED_TARGET, "gguf"), config)
    yield real
    real.free()


def interrupted(engine: Engine, n: int) -> tuple[bool, str]:
    """(whether the n-th line was reached, the text so far) of a request that is interrupted there."""
    stream, text, before = engine.generate(PROMPT, temperature=0.0, max_tokens=9), "", sys.gettrace()
    try:
        sys.settrace(At(n))
        for chunk in stream:
            text += chunk.text
    except KeyboardInterrupt:
        return True, text
    finally:
        sys.settrace(before)
    return False, text


def test_who_goes_on_behind_an_interrupt_reads_what_a_cold_cache_says(backend: Backend) -> None:
    cold: dict[str, str] = {}
    n, reached, taken = 1, True, 0
    while reached:
        engine = Engine(emptied(backend) if isinstance(backend, LlamaCppBackend) else _fresh())
        reached, text = interrupted(engine, n)
        for going_on in (PROMPT + text, PROMPT):
            result = engine.generate(going_on, temperature=0.0, max_tokens=6).finish()
            taken += result.cached_tokens
            if going_on not in cold:
                fresh = Engine(_fresh() if isinstance(backend, ToyBackend) else emptied(backend))
                cold[going_on] = fresh.generate(going_on, temperature=0.0, max_tokens=6).finish().text
                engine = fresh
            else:
                assert result.text == cold[going_on], n
        n += 7
    assert n > 100 and taken > 0


def _fresh() -> ToyBackend:
    return ToyBackend(markov(), n_ctx=1024)
