"""llama.cpp with a model whose state cannot go back: a tiny Mamba of random weights."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from localspec.backends.base import Span
from localspec.backends.llama_cpp.backend import LlamaCppBackend
from localspec.models.model import model_at
from localspec.protocol.engine_config import EngineConfig
from tests import random_ggufs


@pytest.fixture(scope="module")
def mamba(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaCppBackend]:
    path = tmp_path_factory.mktemp("mamba") / "mamba.gguf"
    random_ggufs.write_model(path, "mamba")
    backend = LlamaCppBackend(model_at(path), EngineConfig(n_ctx=4096, parallel=2, prefill_chunk=2000))
    yield backend
    backend.free()


@pytest.mark.slow
def test_who_cannot_go_back_does_not_give_up_in_the_middle(mamba: LlamaCppBackend) -> None:
    assert mamba.capabilities.obstacle
    tokens = [300 + i % 500 for i in range(2000)]
    undisturbed, disturbed = mamba.open(), mamba.open()
    expected = mamba.forward([Span(undisturbed, tokens, 1)]).rows(0, 1)
    mamba.preempt(True)
    found = mamba.forward([Span(disturbed, tokens, 1)]).rows(0, 1)
    mamba.preempt(False)
    assert (found == expected).all() and mamba.length(disturbed) == len(tokens)
    mamba.close(undisturbed)
    mamba.close(disturbed)
