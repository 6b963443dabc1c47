"""Ctrl-C at any point of a request, in process: what is cached is right, or not there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import pytest

from localspec.backends.base import Backend, Rows, Span
from localspec.backends.llama_cpp.backend import LlamaCppBackend
from localspec.backends.rounding import PRESUMED, set_rounding
from localspec.backends.toy import ToyBackend, markov
from localspec.engine.engine import Engine
from localspec.models.bundled import BUNDLED_TARGET, bundled_model
from localspec.models.model import model_at
from localspec.protocol.engine_config import EngineConfig
from tests.mlx_models import write_model
from tests.parity.play import emptied

PROMPT = "def f(x):\n    return x\n\n\ndef g(x):\n    return f(x) + f(x)\n"
ENGINE = ("round.py", "exactness.py", "sequence.py")
PLACES = (*ENGINE, "backend.py", "toy.py", "sequences.py")
MLX = (*ENGINE, "mlx/backend.py", "slot.py", "mlx/prefetch.py")
GRAPH = (*MLX, "layers.py", "attention.py")
"""with mlx-lm's own layers: half of a graph that is built changes some caches and not others"""


class At:
    """Raises KeyboardInterrupt at the n-th line that is run in ``places``: in a round or its forward."""

    def __init__(self, n: int, places: tuple[str, ...] = PLACES) -> None:
        self.left, self.places = n, places

    def __call__(self, frame: FrameType, event: str, _: Any) -> At | None:
        if not frame.f_code.co_filename.endswith(self.places):
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self


class Case(NamedTuple):
    """``fresh`` gives the backend with nothing in it; every ``step``-th line is interrupted."""

    fresh: Callable[[], Backend]
    places: tuple[str, ...] = PLACES
    step: int = 7


MODELS = (
    "toy",
    "llama_cpp",
    *("mlx lfm2", "mlx llama4"),
    *(pytest.param(f"mlx {name}", marks=pytest.mark.slow) for name in ("mamba", "gemma3", "deepseek-v32")),
)
"""of MLX's the first has states beside cells, the second caches that change in place"""


@pytest.fixture(params=MODELS)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Case]:
    if request.param == "toy":
        yield Case(lambda: ToyBackend(markov(), n_ctx=1024))
        return
    if request.param == "llama_cpp":
        config = EngineConfig(n_ctx=512, parallel=2, threads=1)
        real: Backend = LlamaCppBackend(model_at(bundled_model(BUNDLED_TARGET, "gguf")), config)
        yield Case(lambda: emptied(real))
    else:
        name = request.param.removeprefix("mlx ")
        real = mlx_backend(name, tmp_path)
        in_place = name in ("llama4", "deepseek-v32")
        yield Case(lambda: emptied(real), *((GRAPH, 101) if in_place else (MLX, 23)))
    real.free()


def mlx_backend(name: str, folder: Path) -> Backend:
    backend = pytest.importorskip("localspec.backends.mlx.backend")
    config = EngineConfig(n_ctx=300, parallel=3)
    made: Backend = backend.MlxBackend(model_at(write_model(name, folder)), config, measured=False)
    set_rounding(made, PRESUMED)
    return made


def interrupted(engine: Engine, n: int, places: tuple[str, ...]) -> tuple[bool, str]:
    """(whether the n-th line was reached, the text so far) of a request that is interrupted there."""
    stream, text, before = engine.generate(PROMPT, temperature=0.0, max_tokens=9), "", sys.gettrace()
    try:
        sys.settrace(At(n, places))
        for chunk in stream:
            text += chunk.text
    except KeyboardInterrupt:
        return True, text
    finally:
        sys.settrace(before)
    return False, text


@pytest.mark.slow
def test_who_goes_on_behind_an_interrupt_reads_what_a_cold_cache_says(case: Case) -> None:
    cold: dict[str, str] = {}
    n, reached, taken, compared = 1, True, 0, 0
    while reached:
        engine = Engine(case.fresh())
        reached, text = interrupted(engine, n, case.places)
        for going_on in (PROMPT + text, PROMPT):
            result = engine.generate(going_on, temperature=0.0, max_tokens=6).finish()
            taken += result.cached_tokens
            if going_on not in cold:
                engine = Engine(case.fresh())
                cold[going_on] = engine.generate(going_on, temperature=0.0, max_tokens=6).finish().text
            else:
                assert result.text == cold[going_on], n
                compared += 1
        n += case.step
    assert compared > 20 and taken > 0


HEADS = ("the first of three, ", "second, and longer than others, ", "third ")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen3", pytest.param("gemma3", marks=pytest.mark.slow)])
def test_an_interrupted_forward_of_several_mixes_nothing_up(name: str, tmp_path: Path) -> None:
    """Also where rows are moved side by side for it."""
    backend, n, reached = mlx_backend(name, tmp_path), 1, True
    texts = [backend.vocabulary.encode(head * 2, special=False) for head in HEADS]
    expected: list[Rows] = []
    while reached:
        emptied(backend)
        slots = [backend.open() for _ in texts]
        for slot, text in zip(slots, texts, strict=True):
            backend.forward([Span(slot, text, 0)])
        # The first and the last do not lie side by side.
        spans = [Span(slots[0], [70, 71], 1), Span(slots[2], [72], 1)]
        try:
            sys.settrace(At(n, GRAPH))
            backend.forward(spans)
            reached = False
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        assert reached or n > 50
        found = []
        for slot, text in zip(slots, texts, strict=True):
            assert backend.truncate(slot, len(text)) == len(text), n
            found.append(backend.forward([Span(slot, [80], 1)]).rows(0, 1))
        expected = expected or found
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-4, err_msg=str(n))
        n += 3
    backend.free()
