"""Forwards of rounds are equal to the bit, however wide: ggml's reference mode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.backends.base import Span
from localspec.backends.llama_cpp import backend as module
from localspec.backends.llama_cpp.backend import LlamaCppBackend
from localspec.models.catalogue import BUNDLED_TARGET, bundled_model
from localspec.models.model import model_at
from localspec.protocol.requests import EngineConfig
from tests.parity.loaded import measured, quantised

PROMPT, STEPS = 300, 40
"""behind more than 256 cells ggml looks at 512, and sums a lone row in parts"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """At F16 the weights' own kernels differ as well."""
    return quantised(bundled_model(BUNDLED_TARGET), tmp_path_factory.mktemp("q8"), "Q8_0")


@pytest.fixture
def backend(model: Path) -> Iterator[LlamaCppBackend]:
    """With two threads: one has nothing to divide."""
    made = LlamaCppBackend(model_at(model), EngineConfig(n_ctx=512, parallel=1, threads=2))
    yield made
    made.free()


def rows(backend: LlamaCppBackend, width: int) -> NDArray[np.float32]:
    """The logits of the same tokens, ``width`` a forward."""
    tokens = [(7 * i) % 8000 for i in range(PROMPT + STEPS)]
    sequence, found = backend.open(), []
    for at in range(0, PROMPT, 256):
        backend.forward([Span(sequence, tokens[at : min(at + 256, PROMPT)], 0)])
    for at in range(PROMPT, PROMPT + STEPS, width):
        piece = tokens[at : min(at + width, PROMPT + STEPS)]
        found.append(backend.forward([Span(sequence, piece, len(piece))]).rows(0, len(piece)))
    backend.close(sequence)
    return np.concatenate(found)


@pytest.mark.slow
def test_rows_do_not_depend_on_the_width(backend: LlamaCppBackend) -> None:
    if not backend.reference_mode.available:
        pytest.skip("this build of llama.cpp does not lead to ggml's backends")
    alone = rows(backend, 1)
    for width in (2, 5, 21):
        assert (rows(backend, width) == alone).all(), width


@pytest.fixture(scope="module")
def k_quant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaCppBackend]:
    """The bundled target at Q4_K_M: from four rows on another kernel computes it."""
    small = quantised(bundled_model(BUNDLED_TARGET), tmp_path_factory.mktemp("q4"), "Q4_K_M")
    made = LlamaCppBackend(model_at(small), EngineConfig(n_ctx=512, parallel=2, threads=2))
    if not made.reference_mode.available:
        pytest.skip("this build of llama.cpp does not lead to ggml's backends")
    yield made
    made.free()


@pytest.mark.slow
def test_the_widths_that_are_said_to_be_exact_are(k_quant: LlamaCppBackend) -> None:
    """A forward of four tokens is sometimes equal by chance: a probe that tried it twice found it exact."""
    measured(k_quant)
    found = k_quant.capabilities
    alone = rows(k_quant, 1)
    equal = [width for width in (2, 3, 4, 5, 8) if (rows(k_quant, width) == alone).all()]
    assert found.exact_width == max((1, *equal)) and equal, "few rows are equal, and all of them are found"


def test_without_the_mode_they_do(backend: LlamaCppBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """If not, ggml has changed, and the mode can go."""
    monkeypatch.setattr(module, "TILE", 0)
    assert (rows(backend, 5) != rows(backend, 1)).any()


def test_without_the_mode_a_model_is_checked_behind_a_long_context(
    model: Path, backend: LlamaCppBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert backend.capabilities.splits_contexts != backend.reference_mode.available
    monkeypatch.setattr(module, "_switches", lambda context: [])
    other = LlamaCppBackend(model_at(model), EngineConfig(n_ctx=512, parallel=1))
    assert other.capabilities.splits_contexts
    other.free()


@pytest.mark.parametrize(
    ("weights", "longest", "exact", "on"),
    [
        ("Q8_0", 1, False, True),
        ("Q4_K", 1, False, False),
        ("Q4_K", 1, True, True),
        ("Q4_K", 2, False, True),
        ("Q4_K", 16, True, False),
        ("Q8_0", 64, True, False),
    ],
)
def test_the_mode_is_on_where_it_makes_rows_equal_or_is_faster(
    monkeypatch: pytest.MonkeyPatch, weights: str, longest: int, exact: bool, on: bool
) -> None:
    switched: list[bool] = []
    monkeypatch.setattr(module, "_switches", lambda context: [switched.append])
    mode = module.ReferenceMode(None, [weights])
    mode.for_widths(8 if not on else 64, 64 if on else 8)
    mode.for_widths(longest, longest, exact=exact)
    assert (switched or [False])[-1] == on
    assert mode.fast_alone == (weights == "Q4_K")


def test_a_model_that_is_whole_on_a_gpu_has_no_such_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_switches", lambda context: [print])
    mode = module.ReferenceMode(None, ["Q4_K"], on_cpu=False)
    assert not mode.available and not mode.fast_alone


def test_a_library_that_does_not_lead_there_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.backends.llama_cpp.native.lib._lib", object())
    mode = module.ReferenceMode(None, ["Q8_0"])
    assert not mode.available
    mode.for_widths(1, 1)
