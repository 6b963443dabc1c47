"""SIGINT at random times, again and again on one engine: later answers are those of a fresh one."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localspec.backends.llama_cpp.backend import LlamaCppBackend
from localspec.backends.rounding import PRESUMED, set_rounding
from localspec.backends.toy import ToyBackend
from localspec.config import EngineConfig
from localspec.engine.engine import Engine
from localspec.models.bundled import BUNDLED_DRAFT, BUNDLED_TARGET, bundled_model
from localspec.models.model import model_at
from tests.backends.test_llama_hybrid import model
from tests.engine.interrupted import Scene, Truth, check, interrupted_after
from tests.slow.share import share
from tests.toys import share_always, small_markov

ROUNDS = 200
TURNS = 4
"""scenes whose prompts differ"""


def toy() -> Engine:
    target, draft = (ToyBackend(small_markov(seed), n_ctx=256, max_sequences=2) for seed in (3, 4))
    return share_always(Engine(target, draft))


def bundled() -> Engine:
    return _real(bundled_model(BUNDLED_TARGET, "gguf"), bundled_model(BUNDLED_DRAFT, "gguf"))


def hybrid() -> Engine:
    """Random weights whose states go back to marks alone, drafting for themselves."""
    return _real(model("lfm2"), model("lfm2"))


def _real(target: Path, draft: Path) -> Engine:
    config = EngineConfig(n_ctx=256, parallel=2, threads=1)
    one = LlamaCppBackend(model_at(target), config, measured=False)
    set_rounding(one, PRESUMED)
    other = LlamaCppBackend(model_at(draft), config, measured=False, drafts=True)
    return share_always(Engine(one, other, config=config))


@pytest.fixture(autouse=True)
def sigint() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, whatever runs the tests has made of it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def strike(make: Callable[[], Engine], rounds: int, seed: int) -> tuple[int, Counter[str]]:
    """Scenes on one engine, interrupted at random times; returns how many were, and the requests' ends."""
    rng, truth, struck, ends = random.Random(seed), Truth(make), 0, Counter[str]()
    with make() as engine:
        for turn in range(TURNS):
            started = time.perf_counter()
            Scene(engine, turn).play()
            lasts = time.perf_counter() - started
        for i in range(rounds):
            scene, after = Scene(engine, i % TURNS), rng.uniform(0, lasts)
            started = time.perf_counter()
            if interrupted_after(after, scene.play):
                struck += 1
            else:  # it came too late: the machine is faster now
                lasts = time.perf_counter() - started
            try:
                ends += check(scene, truth)
            except BaseException as error:
                error.add_note(f"round {i} of seed {seed}, interrupted after {after:.6f} s")
                raise
    return struck, ends


# An interrupt in a callback or a finaliser, where Python cannot raise it, is printed and gone.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("make", [toy, bundled, hybrid])
def test_a_few_signals(make: Callable[[], Engine]) -> None:
    struck, ends = strike(make, 4, seed=1)
    assert struck and ends["length"] > 4, ends


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("make", [toy, bundled, hybrid])
def test_many_signals(make: Callable[[], Engine]) -> None:
    rounds = share(ROUNDS)
    struck, ends = strike(make, rounds, seed=2)
    assert struck > rounds / 3 and ends["the request was interrupted"] > rounds / 40, ends
