"""Plain steps are begun ahead, and forgotten without a trace where something else comes."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from localspec.backends.base import Span
from localspec.models.model import model_at

pytest.importorskip("mlx_lm", reason="mlx and mlx-lm are not installed: pip install -e '.[mlx]'")
from localspec.backends.mlx.backend import MlxBackend  # noqa: E402
from localspec.backends.mlx.prefetch import STREAK  # noqa: E402
from localspec.protocol.requests import EngineConfig  # noqa: E402
from tests.mlx_models import write_model  # noqa: E402

CONFIG = EngineConfig(n_ctx=128, parallel=2)


class Counted:
    """A model that counts how often it is called."""

    def __init__(self, backend: MlxBackend) -> None:
        self._model, self.calls = backend._model, 0
        backend._model = self

    def __call__(self, *arguments: object, **named: object) -> object:
        self.calls += 1
        return self._model(*arguments, **named)


def greedy(backend: MlxBackend, sequence: int, n: int, token: int = 65) -> list[int]:
    """Plain greedy decoding: ``n`` tokens behind ``token``."""
    said = [token]
    for _ in range(n):
        said += backend.forward([Span(sequence, said[-1:], 1)]).argmax()
    return said


@pytest.mark.parametrize("name", ["qwen3", "gpt-oss", "qwen3.5", "baichuan-m1"])
def test_what_was_begun_is_taken_up_and_nothing_is_computed_twice(name: str, tmp_path: Path) -> None:
    backend = MlxBackend(model_at(write_model(name, tmp_path)), CONFIG)
    counted = Counted(backend)
    sequence = backend.open()
    greedy(backend, sequence, STREAK + 30)
    assert counted.calls == STREAK + 30 + 1, "the one that was begun last is not asked for"
    assert backend.length(sequence) == STREAK + 30
    backend.free()


@pytest.mark.parametrize("name", ["qwen3", "qwen3.5", pytest.param("gpt-oss", marks=pytest.mark.slow)])
def test_whatever_comes_instead_is_computed_as_if_nothing_had_been_begun(name: str, tmp_path: Path) -> None:
    """Other tokens, several, a rollback, a neighbour, a fork: the rows are those of a fresh start."""
    backend, reference = (MlxBackend(model_at(write_model(name, tmp_path / n)), CONFIG) for n in "ab")
    rng = random.Random(name)
    for turn in range(8):
        sequence, other = backend.open(), backend.open()
        said = greedy(backend, sequence, STREAK + 3, token=65 + turn)
        kept = said[:-1]
        if turn % 4 == 1:
            kept = kept[: backend.truncate(sequence, len(kept) - 3)]
        if turn % 4 == 2:
            backend.forward([Span(other, said[:5], 0)])
        if turn % 4 == 3:
            backend.close(other)
            other = backend.fork(sequence, backend.length(sequence))
        tail = [rng.randrange(256) for _ in range(rng.randrange(1, 4))]
        rows = backend.forward([Span(sequence, tail, 1)]).rows(0, 1)
        alone = reference.open()
        expected = reference.forward([Span(alone, [*kept, *tail], 1)]).rows(0, 1)
        assert np.abs(rows - expected).max() < 1e-4
        reference.close(alone)
        backend.close(sequence)
        backend.close(other)
    backend.free()
    reference.free()


def test_after_a_loss_more_steps_have_to_go_that_way(tmp_path: Path) -> None:
    backend = MlxBackend(model_at(write_model("qwen3", tmp_path)), CONFIG)
    counted = Counted(backend)
    sequence = backend.open()
    for _ in range(3):
        said = greedy(backend, sequence, STREAK + 2)
        backend.forward([Span(sequence, [said[-1], 65], 1)])
    assert counted.calls == 3 * (STREAK + 3) + 1, "one step was lost, not three"
    backend.free()


def test_nothing_is_begun_for_requests_that_do_not_take_the_best_token(tmp_path: Path) -> None:
    backend = MlxBackend(model_at(write_model("qwen3", tmp_path)), CONFIG)
    counted = Counted(backend)
    sequence, token = backend.open(), 65
    for _ in range(20):
        token = int(backend.forward([Span(sequence, [token], 1)]).rows(0, 1)[0].argmax())
    assert counted.calls == 20
    backend.free()
