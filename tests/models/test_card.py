"""Texts of a model that llama.cpp's server reports, from the files of both formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.models.catalogue import BUNDLED_TARGET, bundled_model
from localspec.models.gguf import read_header
from localspec.models.template import CHATML, PLAIN, texts_of
from tests.mlx_pair import mlx_model
from tests.models import ggufs


@pytest.mark.parametrize("format", ["gguf", "mlx"])
def test_both_formats_of_a_model_have_their_texts(format: str) -> None:
    path = bundled_model(BUNDLED_TARGET) if format == "gguf" else mlx_model(BUNDLED_TARGET)
    texts = texts_of(path)
    assert texts["eos_token"] == "<|im_end|>"
    assert texts["bos_token"] == ("<|endoftext|>" if format == "gguf" else "")
    assert "<|im_start|>" in texts["chat_template"] and texts["model_ftype"] in ("F16", "BF16")


def test_a_file_says_little_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(ggufs.gguf([ggufs.string("tokenizer.ggml.model", "llama")]))
    assert list(texts_of(path).values())[1:] == ["", "", PLAIN]
    path.write_bytes(ggufs.gguf([ggufs.strings("tokenizer.ggml.tokens", ["<|im_start|>"])]))
    assert texts_of(path)["chat_template"] == CHATML
    path.write_bytes(ggufs.gguf([ggufs.uint32("tokenizer.ggml.eos_token_id", 9)]))
    assert texts_of(path)["eos_token"] == "", "there is no such token"


def test_the_bytes_on_a_gpu_are_those_of_the_last_layers_and_the_output(tmp_path: Path) -> None:
    names = ["token_embd.weight", "output.weight", "output_norm.weight", *(f"blk.{i}.a" for i in range(3))]
    tensors = [ggufs.tensor(name, (4, 2), ggufs.F32, 32 * i) for i, name in enumerate(names)]
    path = tmp_path / "m.gguf"
    path.write_bytes(ggufs.gguf([], tensors, b"\0" * 32 * len(names)))
    header = read_header(path)
    assert [header.bytes_of_last(n) // 32 for n in (0, 1, 2, 3, 4, 999)] == [0, 2, 3, 4, 5, 5]
