"""llama.cpp with recurrent states: tiny models of random weights, of several architectures."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest

from localspec.backends.base import Backend, Span
from localspec.backends.llama_cpp import backend as module
from localspec.backends.llama_cpp.backend import NO_ROOM, NO_STATES, RECURRENT, LlamaCppBackend
from localspec.engine.load import load
from localspec.models import needs
from localspec.models.fit import needs_of
from localspec.models.model import model_at
from localspec.models.needs import MARKS, ROLLBACK, size_of, states_kept
from localspec.protocol.requests import EngineConfig
from localspec.wording import MB
from tests import random_ggufs
from tests.conformance.backend import BackendConformance, feed

SMALL = EngineConfig(n_ctx=512, parallel=4, threads=1, prefill_chunk=128)
ROLLED_BACK = ("lfm2", "qwen35")
FIRST_ALONE, CLAMPED = "glm5-next", "mamba"


@cache
def model(architecture: str) -> Path:
    path = Path(mkdtemp(prefix="hybrid")) / f"{architecture}.gguf"
    return random_ggufs.write_model(path, architecture)


class TestHybrids(BackendConformance):
    @pytest.fixture(scope="class", params=(*ROLLED_BACK, CLAMPED))
    @classmethod
    def shared(cls, request: pytest.FixtureRequest) -> Iterator[Backend]:
        cls.tolerance = 0.02  # cells of F16
        backend = LlamaCppBackend(model_at(model(request.param)), SMALL)
        yield backend
        backend.free()

    def keeps(self, backend: Backend) -> bool:
        return False


@pytest.fixture(scope="module", params=ROLLED_BACK)
def hybrid(request: pytest.FixtureRequest) -> Iterator[LlamaCppBackend]:
    backend = LlamaCppBackend(model_at(model(request.param)), SMALL)
    yield backend
    backend.free()


TEXT = [300 + 7 * i % 900 for i in range(64)]
START = 20


def begun(backend: LlamaCppBackend, wrong: int) -> int:
    """A sequence of ``START + 1`` right tokens, the last of them in one forward with so many wrong ones."""
    sequence = backend.open()
    feed(backend, sequence, TEXT[:START], rows=0)
    feed(backend, sequence, [TEXT[START], *[9] * wrong], rows=1 + wrong)
    return sequence


def next_row(backend: LlamaCppBackend, sequence: int) -> np.ndarray:
    return feed(backend, sequence, TEXT[START + 1 : START + 3], rows=2).rows(0, 2)


@pytest.mark.parametrize("wrong", range(ROLLBACK + 1))
def test_a_round_goes_back_to_the_bit(hybrid: LlamaCppBackend, wrong: int) -> None:
    """llama.cpp claims that it can roll back by 8 after a forward of 3, and then has another position."""
    plain, sequence = begun(hybrid, 0), begun(hybrid, wrong)
    expected = next_row(hybrid, plain)
    assert hybrid.reach(sequence, START) == 0
    # In two steps: after the first cut llama.cpp would refuse another.
    for length in (START + 1 + wrong // 2, START + 1):
        assert hybrid.truncate(sequence, length) == length
    # Forwards of 1 and of more tokens round differently.
    exact = next_row(hybrid, sequence)
    reference = begun(hybrid, ROLLBACK)
    hybrid.truncate(reference, START + 1)
    if wrong:
        assert np.array_equal(exact, next_row(hybrid, reference))
    assert np.abs(exact - expected).max() < 0.02
    for each in (plain, sequence, reference):
        hybrid.close(each)


def test_copies_of_what_was_cut_are_cut(hybrid: LlamaCppBackend) -> None:
    """llama.cpp's own copy would be of the state before the cut."""
    sequence = begun(hybrid, 5)
    hybrid.truncate(sequence, START + 1)
    copy = hybrid.fork(sequence, START + 1)
    restored = hybrid.restore(hybrid.save(sequence))
    assert [hybrid.length(each) for each in (copy, restored)] == [START + 1] * 2
    rows = [next_row(hybrid, each) for each in (copy, restored, sequence)]
    assert np.array_equal(rows[0], rows[2]) and np.array_equal(rows[1], rows[2])
    for each in (sequence, copy, restored):
        hybrid.close(each)


def test_a_mark_is_come_back_to_from_anywhere(hybrid: LlamaCppBackend) -> None:
    sequence = begun(hybrid, 4)
    hybrid.truncate(sequence, START + 2)
    hybrid.truncate(sequence, START + 1)
    hybrid.mark(sequence)
    expected = next_row(hybrid, sequence)
    feed(hybrid, sequence, [9] * 30, rows=0)
    assert hybrid.reach(sequence, START + 10) == hybrid.truncate(sequence, START + 10) == START + 1
    assert np.array_equal(next_row(hybrid, sequence), expected)
    copy = hybrid.fork(sequence, START + 2)
    assert hybrid.length(copy) == START + 1
    assert np.array_equal(next_row(hybrid, copy), expected)
    assert hybrid.truncate(sequence, START) == 0
    for each in (sequence, copy):
        hybrid.close(each)


def test_neighbours_that_are_filled_up_go_back_as_well(hybrid: LlamaCppBackend) -> None:
    one, other = begun(hybrid, 0), begun(hybrid, 0)
    hybrid.forward([Span(one, [TEXT[START + 1], *[9] * 6], 7), Span(other, [TEXT[START + 1], 9, 9], 3)])
    for each in (one, other):
        assert hybrid.truncate(each, START + 2) == START + 2
    rows = hybrid.forward([Span(each, TEXT[START + 2 : START + 4], 2) for each in (one, other)]).rows(0, 4)
    assert np.array_equal(rows[:2], rows[2:])
    for each in (one, other):
        hybrid.close(each)


def test_what_the_states_take_is_what_the_header_tells(hybrid: LlamaCppBackend) -> None:
    sequence = begun(hybrid, 0)
    size = size_of(model_at(model(hybrid.model)), SMALL)
    found = len(hybrid._sequences._state(sequence, RECURRENT))
    hybrid.close(sequence)
    assert size.rolls_back and size.state <= found < size.state + 256
    needs = needs_of(model_at(model(hybrid.model)), None, SMALL)
    assert needs.cells == 4 * (512 * size.cell + (1 + ROLLBACK + MARKS) * size.state)


def test_of_some_architectures_no_states_are_kept() -> None:
    backend = LlamaCppBackend(model_at(model(CLAMPED)), SMALL)
    assert backend.capabilities.obstacle == NO_STATES and backend.rollback(backend.open()) == 0
    backend.free()
    size = size_of(model_at(model(CLAMPED)), SMALL)
    assert size.state and not size.rolls_back
    assert needs_of(model_at(model(CLAMPED)), None, SMALL).cells == int(
        4 * (512 * size.cell + (1 + MARKS) * size.state)
    )


@pytest.mark.slow
def test_what_cannot_go_back_does_not_give_up_in_the_middle() -> None:
    config = EngineConfig(n_ctx=4096, parallel=2, prefill_chunk=2000)
    backend, tokens = LlamaCppBackend(model_at(model(CLAMPED)), config), [300 + i % 500 for i in range(2000)]
    undisturbed, disturbed = backend.open(), backend.open()
    expected = backend.forward([Span(undisturbed, tokens, 1)]).rows(0, 1)
    backend.preempt(True)
    found = backend.forward([Span(disturbed, tokens, 1)]).rows(0, 1)
    assert (found == expected).all() and backend.length(disturbed) == len(tokens)
    backend.free()


def test_a_model_that_llama_cpp_computes_right_once_has_one_sequence() -> None:
    backend = LlamaCppBackend(model_at(model(FIRST_ALONE)), SMALL)
    assert backend.capabilities.max_sequences == 1
    text = TEXT * 3
    rows = []
    for wrong in (0, 5):
        sequence = backend.open()
        feed(backend, sequence, text[:160], rows=0)
        state = backend.save(sequence)
        feed(backend, sequence, [9] * (wrong + 1), rows=0)
        assert backend.truncate(sequence, 161) == 161
        backend.close(sequence)
        restored = backend.restore(state)
        rows.append(feed(backend, restored, text[160:168], rows=8).rows(0, 8))
        backend.close(restored)
    assert np.array_equal(rows[0], rows[1])
    assert {*ROLLED_BACK, FIRST_ALONE} <= needs.ROLLED_BACK and {FIRST_ALONE} == needs.FIRST_ALONE
    size = size_of(model_at(model(FIRST_ALONE)), SMALL)
    sequence = begun(backend, 0)
    found = len(backend._sequences._state(sequence, RECURRENT))
    backend.free()
    assert size.rolls_back and size.state <= found < size.state + 256
    assert needs_of(model_at(model(FIRST_ALONE)), None, SMALL).cells == int(
        512 * size.cell + (1 + ROLLBACK + MARKS) * size.state
    )


def test_fewer_states_are_kept_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [states_kept(MB, 4, free) for free in (None, 800 * MB, 128 * MB, 32 * MB, 31 * MB)] == [
        *(ROLLBACK, ROLLBACK, 4, 1, 0)
    ]
    state = size_of(model_at(model("lfm2")), SMALL).state
    for free, kept, obstacle in ((8 * 4 * 3 * state, 3, ""), (0, 0, NO_ROOM)):
        monkeypatch.setattr(module, "free_memory", lambda free=free: free)
        backend = LlamaCppBackend(model_at(model("lfm2")), SMALL)
        assert (backend.rollback(backend.open()), backend.capabilities.obstacle) == (kept, obstacle)
        backend.free()
    lean = needs_of(model_at(model("lfm2")), None, SMALL, 0)
    assert needs_of(model_at(model("lfm2")), None, SMALL).cells - lean.cells == 4 * ROLLBACK * state


@pytest.mark.parametrize("architecture", ["lfm2", "qwen35", "mamba"])
def test_a_recurrent_model_drafts(architecture: str, tmp_path: Path) -> None:
    """For itself: what it drafts is right. It goes back to its mark alone."""
    target = model("lfm2" if architecture == "mamba" else architecture)
    settings: dict[str, Any] = {"temperature": 0.0, "max_tokens": 40, "exactness": "fast"}
    with load(str(target), draft=str(model(architecture)), n_ctx=512, parallel=1) as engine:
        plain = engine.generate("def fib(n):", proposer="none", **settings).finish()
        found = engine.generate("def fib(n):", proposer="draft", k=4, **settings).finish()
        assert found.text == plain.text and found.stats.drafted > 20
        if architecture != "mamba":
            assert found.stats.accepted > 0.9 * found.stats.drafted
        while engine.rest():
            pass
        assert engine.learning.costs.knows(8, 256)


def test_a_prompt_is_read_from_the_end_of_an_answer_or_from_the_mark() -> None:
    settings: dict[str, Any] = {"temperature": 0.0, "max_tokens": 8, "exactness": "fast"}
    prompt = "class Path:\n    def name(self):\n        return self._parts[-1]\n\n" * 4
    sizes: dict[str, Any] = {"n_ctx": 512, "parallel": 1, "prefill_chunk": 32}
    with load(str(model("qwen35")), draft="none", **sizes) as engine:
        first = engine.generate(prompt, **settings).finish()
        border = (first.prompt_tokens - 1) // 32 * 32  # where the last piece begins
        again = engine.generate(prompt, **settings).finish()
        assert again.text == first.text and again.cached_tokens == border >= 32
        other = engine.generate(prompt + "x = 1\n", **settings).finish()
        assert other.cached_tokens == border
    with load(str(model("qwen35")), draft="none", **sizes) as engine:
        alone = engine.generate(prompt + "x = 1\n", **settings).finish()
        assert alone.cached_tokens == 0 and alone.text == other.text
