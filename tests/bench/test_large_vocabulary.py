"""A model of random weights with a large vocabulary, and the overhead that is measured on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from assets.bench.acceptance import large_vocabulary
from assets.bench.acceptance.large_vocabulary import large_vocabulary_overheads
from assets.bench.acceptance.random_model import random_model
from localspec.backends.llama_cpp.backend import LlamaCppBackend
from localspec.bench.inflate import Shape
from localspec.engine.engine import Engine
from localspec.errors import InvalidOptions
from localspec.models.bundled import BUNDLED_TARGET, bundled_model
from localspec.models.model import model_at
from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.options import Options
from localspec.protocol.requests import Request, TextPrompt

pytestmark = pytest.mark.slow
"""models are written and run"""

TARGET = bundled_model(BUNDLED_TARGET)
SMALL = EngineConfig(n_ctx=512, parallel=1, threads=1)
TINY = Shape(width=64, layers=1, heads=2, kv_heads=1, feed_forward=64)
TEXT = 'def copy(source, target):\n    """Copy source to target.'


def test_a_random_model_has_a_large_vocabulary(tmp_path: Path) -> None:
    path = random_model(tmp_path / "random.gguf", TARGET, shape=TINY)
    small, large = (LlamaCppBackend(model_at(p), SMALL, measured=False) for p in (TARGET, path))
    try:
        assert large.vocabulary.size == 151_936
        assert large.vocabulary.encode(TEXT, special=True) == small.vocabulary.encode(TEXT, special=True)
        assert large.vocabulary.end_tokens == small.vocabulary.end_tokens
        assert large.vocabulary.piece(151_935) == b"<151935>"
    finally:
        small.free()
        large.free()
    with Engine(LlamaCppBackend(model_at(path), SMALL, measured=False)) as engine:
        request = Request(
            prompt=TextPrompt(TEXT), options=Options(temperature=0.0, max_tokens=32, proposer="none")
        )
        assert len(engine.stream(request).finish().text) >= 32


def test_a_random_model_has_at_least_the_tokens_of_its_source(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptions, match="a vocabulary of .* tokens is smaller than the source"):
        random_model(tmp_path / "random.gguf", TARGET, shape=TINY, vocabulary=8000)


def test_the_overhead_is_of_plain_decoding_and_prompt_lookup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    monkeypatch.setattr(large_vocabulary, "TARGET_SHAPE", TINY)
    for _ in range(2):  # the second time the model is there
        found = large_vocabulary_overheads(SMALL, lambda what, fraction: None)
        assert [overhead.contestant for overhead in found] == ["none", "prompt-lookup"]
        assert {overhead.vocabulary for overhead in found} == {151_936}
        assert all(overhead.rounds > 0 and overhead.share > 0 for overhead in found)
