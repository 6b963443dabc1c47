"""Inflation: another shape, the same function."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from localspec.backends.base import Rows, Span
from localspec.backends.llama_cpp.backend import LlamaCppBackend
from localspec.bench.inflate import (
    DRAFT_RATIOS,
    QUANTISATIONS,
    TARGET_SHAPE,
    Shape,
    draft_shape,
    inflate,
    inflated_model,
)
from localspec.engine.engine import Engine
from localspec.errors import InvalidOptions, LocalspecError, ModelInvalid, ModelNotFound
from localspec.models.bundled import BUNDLED_DRAFT, BUNDLED_TARGET, bundled_model
from localspec.models.gguf import read_header
from localspec.models.model import model_at
from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.options import Options
from localspec.protocol.requests import Request
from tests.parity.prompts import prompts

pytestmark = pytest.mark.slow
"""models are written and run: half a minute"""

TARGET, DRAFT = bundled_model(BUNDLED_TARGET), bundled_model(BUNDLED_DRAFT)
SMALL = EngineConfig(n_ctx=512, parallel=1, threads=1)
LARGER = Shape(width=512, layers=7, heads=8, kv_heads=4, feed_forward=1024)
SAME = Shape(width=256, layers=6, heads=4, kv_heads=2, feed_forward=704)
TEXT = 'def copy(source, target):\n    """Copy source to target.'


def texts(path: Path, n: int = 4) -> list[str]:
    """Plain greedy answers to a few prompts of every kind."""
    options = Options(temperature=0.0, max_tokens=32, proposer="none")
    with Engine(LlamaCppBackend(model_at(path), SMALL, measured=False)) as engine:
        return [engine.stream(Request(prompt=p, options=options)).finish().text for p in prompts(n)]


def logits(path: Path) -> Rows:
    """The last row of a short text, shape (1, vocabulary size)."""
    backend = LlamaCppBackend(model_at(path), SMALL, measured=False)
    try:
        tokens = backend.vocabulary.encode(TEXT, special=False)
        return backend.forward([Span(backend.open(), tokens, 1)]).rows(0, 1)
    finally:
        backend.free()


@pytest.fixture(scope="module")
def small_texts() -> list[str]:
    return texts(TARGET)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    yield tmp_path / "home"


# --- the same function ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape",
    [
        LARGER,
        SAME._replace(heads=6),  # a KV head with more heads than it had
        SAME._replace(heads=12, kv_heads=3),  # and KV heads that nobody reads
        SAME._replace(layers=9),
        SAME._replace(width=544),
    ],
    ids=lambda shape: shape.label,
)
def test_an_inflated_model_says_the_same(tmp_path: Path, small_texts: list[str], shape: Shape) -> None:
    path = inflate(TARGET, tmp_path / "large.gguf", shape, "F16")
    assert texts(path) == small_texts
    np.testing.assert_allclose(logits(path), logits(TARGET), atol=0.05)


def test_the_draft_is_inflated_as_well(tmp_path: Path) -> None:
    path = inflate(DRAFT, tmp_path / "large.gguf", Shape(192, 3, 6, 2, 512), "F16")
    assert texts(path) == texts(DRAFT)


def test_the_file_says_its_shape(tmp_path: Path) -> None:
    header = read_header(inflate(TARGET, tmp_path / "large.gguf", LARGER, "Q8_0"))
    assert header.quantisation == "Q8_0"
    assert header.of_architecture("embedding_length") == LARGER.width
    norms = LARGER.layers * 2 * (LARGER.width + 64) + LARGER.width
    assert header.parameters == LARGER.parameters(8192) + norms


def test_everything_else_is_copied(tmp_path: Path) -> None:
    before, after = GGUFReader(TARGET), GGUFReader(inflate(TARGET, tmp_path / "large.gguf", LARGER, "F16"))
    values = [
        {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
        for reader in (before, after)
    ]
    assert values[0].keys() == values[1].keys()
    changed = {key for key in values[0] if values[0][key] != values[1][key]}
    assert {key.rpartition(".")[2] for key in changed} == {
        *("embedding_length", "block_count", "head_count", "head_count_kv", "feed_forward_length"),
        "layer_norm_rms_epsilon",
    }


@pytest.mark.parametrize("quantisation", QUANTISATIONS)
def test_every_quantisation_can_be_read(tmp_path: Path, quantisation: str) -> None:
    path = inflate(TARGET, tmp_path / "large.gguf", SAME, quantisation)
    assert read_header(path).quantisation == quantisation
    nearly = np.corrcoef(logits(path)[0], logits(TARGET)[0])[0, 1]
    assert nearly > (0.97 if quantisation.startswith("Q4") else 0.99)


# --- shapes -----------------------------------------------------------------------------------


def test_the_target_shape_is_that_of_half_a_billion() -> None:
    assert TARGET_SHAPE.parameters(151_936) == pytest.approx(494e6, rel=0.01)


@pytest.mark.parametrize("ratio", [0.02, 0.05, *DRAFT_RATIOS, 0.6, 1])
def test_a_draft_shape_has_its_share_of_the_weights(ratio: float) -> None:
    shape = draft_shape(ratio)
    assert shape.parameters(8192) / TARGET_SHAPE.parameters(8192) == pytest.approx(ratio, rel=0.15)


@pytest.mark.parametrize("ratio", DRAFT_RATIOS)
def test_the_bundled_draft_fits_into_a_draft_shape(tmp_path: Path, ratio: float) -> None:
    shape = draft_shape(ratio)._replace(layers=2)  # the many idle layers are of no interest here
    assert texts(inflate(DRAFT, tmp_path / "draft.gguf", shape, "F16"), 2) == texts(DRAFT, 2)


@pytest.mark.parametrize("ratio", [-1, 0, 0.01, 1.5, float("nan")])
def test_a_ratio_that_no_draft_has(ratio: float) -> None:
    with pytest.raises(InvalidOptions, match="ratio|cost"):
        draft_shape(ratio)


@pytest.mark.parametrize(
    ("shape", "word"),
    [
        (SAME._replace(width=224), "width"),
        (SAME._replace(layers=5), "layers"),
        (SAME._replace(heads=3), "heads"),
        (SAME._replace(kv_heads=1), "kv_heads"),
        (SAME._replace(feed_forward=0), "feed_forward"),
        (SAME._replace(width=260), "multiple of 32"),
        (SAME._replace(feed_forward=710), "multiple of 32"),
        (SAME._replace(heads=5), "KV head"),
        (SAME._replace(kv_heads=4), "KV head"),
    ],
)
def test_a_shape_that_the_model_does_not_fit_into(tmp_path: Path, shape: Shape, word: str) -> None:
    with pytest.raises(InvalidOptions, match=word) as caught:
        inflate(TARGET, tmp_path / "large.gguf", shape)
    assert caught.value.remedy
    assert os.listdir(tmp_path) == []


def test_a_quantisation_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptions, match="Q4_K") as caught:
        inflate(TARGET, tmp_path / "large.gguf", SAME, "Q4_K")
    assert "Q8_0" in caught.value.remedy


# --- sources ----------------------------------------------------------------------------------


def test_a_source_that_is_not_there(tmp_path: Path, home: Path) -> None:
    with pytest.raises(ModelNotFound):
        inflate(tmp_path / "none.gguf", tmp_path / "large.gguf", SAME)
    with pytest.raises(ModelNotFound):
        inflated_model(tmp_path / "none.gguf", SAME)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (b"qwen3", b"qwen9", "qwen9"),
        (b"blk.0.attn_q_norm", b"blk.0.attn_q_bias", "plain qwen3"),
        (b"qwen3.block_count", b"qwen3.block_c0unt", "block_count"),
    ],
)
def test_a_source_of_another_kind(tmp_path: Path, old: bytes, new: bytes, sentence: str) -> None:
    source = tmp_path / "other.gguf"
    source.write_bytes(TARGET.read_bytes().replace(old, new))
    with pytest.raises(ModelInvalid, match=sentence):
        inflate(source, tmp_path / "large.gguf", SAME)


# --- files ------------------------------------------------------------------------------------


def test_a_cached_model_is_made_once(home: Path) -> None:
    path = inflated_model(TARGET, SAME, "Q8_0")
    made = path.stat().st_mtime_ns
    assert path.is_relative_to(home)
    assert (inflated_model(TARGET, SAME, "Q8_0"), path.stat().st_mtime_ns) == (path, made)
    assert len({path, inflated_model(TARGET, SAME, "F16"), inflated_model(TARGET, LARGER, "Q8_0")}) == 3


def test_another_model_of_the_same_name_is_another_file(tmp_path: Path, home: Path) -> None:
    source = tmp_path / TARGET.name
    content = bytearray(TARGET.read_bytes())
    content[-1] ^= 1
    source.write_bytes(content)
    assert inflated_model(source, SAME) != inflated_model(TARGET, SAME)


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[float] = []
    inflate(TARGET, tmp_path / "large.gguf", SAME, "F16", told.append)
    assert told == sorted(told) and told[0] == 0 and told[-1] == 1


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    def interrupt(fraction: float) -> None:
        if fraction > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        inflate(TARGET, tmp_path / "large.gguf", SAME, "F16", interrupt)
    assert os.listdir(tmp_path) == []


def test_a_place_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LocalspecError, match="cannot be written"):
        inflate(TARGET, tmp_path / "file" / "large.gguf", SAME)
