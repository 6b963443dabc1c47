"""The bundled pair: one vocabulary, special tokens in their roles, finite weights, and small files."""

from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from localspec.models.catalogue import BUNDLED_DRAFT, BUNDLED_TARGET, bundled_dir, bundled_model
from tests.mlx_pair import field_of

MEGABYTE = 1_000_000
CONTROL = 3


@pytest.fixture(scope="module")
def pair() -> list[GGUFReader]:
    return [GGUFReader(bundled_model(name)) for name in (BUNDLED_TARGET, BUNDLED_DRAFT)]


def test_the_pair_shares_one_tokenizer_and_template(pair: list[GGUFReader]) -> None:
    target, draft = pair
    for key in ("model", "pre", "tokens", "token_type", "merges"):
        assert field_of(target, f"tokenizer.ggml.{key}") == field_of(draft, f"tokenizer.ggml.{key}"), key
    assert field_of(target, "tokenizer.chat_template") == field_of(draft, "tokenizer.chat_template")


def test_weights_are_finite_in_half_precision_and_norms_in_single(pair: list[GGUFReader]) -> None:
    for tensor in (tensor for reader in pair for tensor in reader.tensors):
        is_norm = len(tensor.shape) == 1
        assert tensor.tensor_type.name == ("F32" if is_norm else "F16"), tensor.name
        assert np.isfinite(tensor.data.astype(np.float32)).all(), tensor.name


def test_the_files_are_small() -> None:
    assert bundled_model(BUNDLED_DRAFT).stat().st_size < 4 * MEGABYTE
    files = [path for path in Path(bundled_dir()).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 20 * MEGABYTE
