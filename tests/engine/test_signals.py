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
from localspec.engine.engine import Engine
from localspec.models.bundled import BUNDLED_DRAFT, BUNDLED_TARGET, bundled_model
from localspec.models.model import model_at
from localspec.protocol.engine_config import EngineConfig
from tests.backends.test_llama_hybrid import model
from tests.engine.interrupted import Scene, Truth, check, interrupted_after
from tests.slow.share import share
from tests.toys import share_always, small_markov

INTERRUPTS = 100
TRIES = 20
"""scenes per interrupt, at most: a signal that comes after a scene has ended interrupts nothing"""
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


def strike(make: Callable[[], Engine], interrupts: int, seed: int) -> Counter[str]:
    """Play scenes on one engine until so many were interrupted at random times.

    Returns the number of requests by finish reason or error message.
    """
    rng, truth, struck, ends = random.Random(seed), Truth(make), 0, Counter[str]()
    with make() as engine:
        for turn in range(TURNS):
            started = time.perf_counter()
            Scene(engine, turn).play()
            lasts = time.perf_counter() - started
        for i in range(TRIES * interrupts):
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
            if struck == interrupts:
                return ends
    pytest.fail(f"{struck} of {TRIES * interrupts} scenes were interrupted, {interrupts} were to be: {ends}")


# An interrupt in a callback or a finaliser, where Python cannot raise it, is printed and gone.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("make", [toy, bundled, hybrid])
def test_a_few_signals(make: Callable[[], Engine]) -> None:
    ends = strike(make, 4, seed=1)
    assert ends["length"] > 4, ends


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("make", [toy, bundled, hybrid])
def test_many_signals(make: Callable[[], Engine]) -> None:
    interrupts = share(INTERRUPTS)
    ends = strike(make, interrupts, seed=2)
    assert (
        ends["an interrupt, such as Ctrl-C, ended the request during a step of the engine"] > interrupts / 20
    ), ends
