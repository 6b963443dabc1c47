"""Ctrl-C at any line of admission, retirement and the chores between: no request and no slot is lost."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from localspec.backends.toy import ToyBackend
from localspec.engine.engine import Engine
from localspec.engine.learning import Learning
from localspec.engine.saved import Saved
from localspec.errors import EngineError
from tests.engine.interrupted import Scene, Truth, check, interrupted_at, moments
from tests.slow.share import SHARE
from tests.toys import share_always, small_markov

# Not preemption.py: between the last line of a `with` and its end a trace function can raise, a signal
# cannot.
BOOKS = tuple(
    f"localspec/{name}.py"
    for name in (
        *("engine/scheduler", "engine/prefixes", "engine/prefix_tree", "engine/engine", "engine/idle"),
        *("engine/saved", "engine/proposers", "engine/stream"),
    )
)
ROUNDS = tuple(
    f"localspec/{name}.py"
    for name in ("engine/round", "engine/sequence", "speculation/draft_model", "backends/toy")
)

SEED = 1


def fresh(directory: Path | None = None) -> Engine:
    """An engine with two slots and a draft model; ``directory`` keeps its chats."""
    target, draft = (ToyBackend(small_markov(seed), n_ctx=256, max_sequences=2) for seed in (3, 4))
    chats = None if directory is None else Saved(directory, "toy", 1 << 20)
    return share_always(Engine(target, draft, learning=Learning(target, draft, chats=chats)))


def interrupt(tmp_path: Path, places: tuple[str, ...], part: float) -> int:
    """Play a scene for each moment of a part of them, interrupted then; returns the number of scenes."""
    truth = Truth(fresh)
    found = moments(places, Scene(fresh(tmp_path)).play)
    chosen = random.Random(SEED).sample(found, round(part * len(found)))
    for n in chosen:
        scene = Scene(fresh(tmp_path))
        reached = interrupted_at(n, places, scene.play)
        try:
            check(scene, truth)
        except BaseException as error:
            error.add_note(f"interrupted at {reached[-1]}, line {n}")
            raise
    return len(chosen)


# An interrupt between opening a file and its first use leaves closing it to the garbage collector.
dropped = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.slow
@dropped
def test_nothing_is_lost_at_some_lines(tmp_path: Path) -> None:
    assert interrupt(tmp_path, BOOKS, 1 / 37) > 20
    assert interrupt(tmp_path, ROUNDS, 1 / 97) > 5


@dropped
@pytest.mark.slow
@pytest.mark.parametrize("places", [BOOKS, ROUNDS], ids=["books", "rounds"])
def test_nothing_is_lost_at_any_line(tmp_path: Path, places: tuple[str, ...]) -> None:
    assert interrupt(tmp_path, places, SHARE) > 800 * SHARE


def test_a_stream_whose_request_is_gone_says_so() -> None:
    engine = fresh()
    stream = engine.generate("abc", temperature=0.0)
    engine._scheduler.abandon()
    with pytest.raises(EngineError, match="ended without a result for this request"):
        stream.finish()
