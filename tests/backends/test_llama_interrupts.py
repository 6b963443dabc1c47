"""Ctrl-C at any line of llama.cpp's backend: sequences hold the tokens that they report."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from localspec.backends.llama_cpp.backend import LlamaCppBackend
from localspec.errors import EngineError
from localspec.models.bundled import BUNDLED_TARGET, bundled_model
from localspec.models.model import model_at
from localspec.protocol.engine_config import EngineConfig
from tests.backends.test_llama_hybrid import model
from tests.conformance.backend import all_rows, feed
from tests.engine.interrupted import interrupted_at

PLACES = ("llama_cpp/sequences.py", "llama_cpp/backend.py")
TEXT = [300 + 7 * i % 900 for i in range(64)]
SURE, END = 21, 32
"""tokens of the text that are in front of drafts, and those that are compared"""


@pytest.fixture(scope="module", params=["cells", "lfm2", "qwen35"])
def backend(request: pytest.FixtureRequest) -> Iterator[LlamaCppBackend]:
    path = bundled_model(BUNDLED_TARGET, "gguf") if request.param == "cells" else model(request.param)
    config = EngineConfig(n_ctx=256, parallel=4, threads=1)
    real = LlamaCppBackend(model_at(path), config, measured=False)
    yield real
    real.free()


def work(backend: LlamaCppBackend) -> None:
    """All that changes a sequence, with drafts that are wrong."""
    sequence = backend.open()
    feed(backend, sequence, TEXT[: SURE - 1], rows=0)
    backend.mark(sequence)
    feed(backend, sequence, [TEXT[SURE - 1], *[9] * 5], rows=6)
    backend.truncate(sequence, SURE + 2)
    backend.truncate(sequence, SURE)
    copy = backend.fork(sequence, SURE)
    feed(backend, copy, TEXT[SURE : SURE + 4], rows=0)
    backend.truncate(copy, SURE - 1)
    backend.restore(backend.save(sequence))
    feed(backend, sequence, [9, 9, 9], rows=3)
    backend.truncate(sequence, SURE)
    backend.mark(sequence, beside=True)
    backend.close(copy)


def last_row(backend: LlamaCppBackend, sequence: int) -> np.ndarray:
    """Of the text's first ``END`` tokens, of which the sequence holds some."""
    return all_rows(feed(backend, sequence, TEXT[backend.length(sequence) : END], rows=1), 1)


def interrupt(backend: LlamaCppBackend, every: int) -> int:
    """The work, interrupted at every so many of its lines; returns how many lines it has."""
    cold = backend.open()
    expected = last_row(backend, cold)
    backend.close(cold)
    n = every
    while len(interrupted_at(n, PLACES, lambda: work(backend))) == n:
        for sequence in sorted(backend.sequences()):
            kept = backend.truncate(sequence, min(backend.length(sequence), SURE))
            assert kept <= SURE
            difference = np.abs(last_row(backend, sequence) - expected).max()
            assert difference < 0.05 * np.abs(expected).max(), (n, sequence, kept, difference)
            backend.close(sequence)
        n += every
    for sequence in backend.sequences():
        backend.close(sequence)
    return n


@pytest.mark.slow
def test_every_sequence_holds_what_it_says_behind_some_lines(backend: LlamaCppBackend) -> None:
    assert interrupt(backend, 13) > 150


@pytest.mark.slow
def test_every_sequence_holds_what_it_says_behind_any_line(backend: LlamaCppBackend) -> None:
    assert interrupt(backend, 1) > 150


def test_a_copy_that_fails_leaves_no_sequence_open(
    backend: LlamaCppBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    sequence = backend.open()
    feed(backend, sequence, TEXT[:SURE], rows=0)

    def copy(*_: int) -> None:
        raise EngineError("there is no memory for a copy")

    monkeypatch.setattr(backend._sequences, "copy", copy)
    with pytest.raises(EngineError, match="no memory"):
        backend.fork(sequence, SURE)
    assert list(backend.sequences()) == [sequence]
    backend.close(sequence)
