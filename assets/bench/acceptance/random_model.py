"""A model of random weights with a large vocabulary, to measure the cost of a row of logits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from localspec.bench.inflate import (
    ARCHITECTURE,
    NOISE,
    Form,
    Part,
    Shape,
    Source,
    Value,
    check_shape,
    gguf_package,
    metadata_of,
    random_layer,
    write_model,
)
from localspec.errors import InvalidOptions

LARGE_VOCABULARY = 151_936
"""Qwen2.5's rows of logits"""
SMALLEST = Shape(1, 1, 1, 1, 1)
"""the source's shape for random weights: any shape is large enough"""


def random_model(
    path: Path,
    source: Path,
    *,
    shape: Shape,
    vocabulary: int = LARGE_VOCABULARY,
    quantisation: str = "Q8_0",
) -> Path:
    """Write a model of random weights, to measure the cost of a row of logits; returns ``path``.

    Its tokens are those of ``source`` and as many more as make ``vocabulary``, so that it reads the
    same prompts; its answers are noise. Raises as :func:`inflate`.
    """
    small = Source(source)
    check_shape(SMALLEST, shape, quantisation)
    least = len(small.value("tokenizer.ggml.tokens"))
    if vocabulary < least:
        raise InvalidOptions(
            f"a vocabulary of {vocabulary} tokens is smaller than the source's of {least}",
            "Give a larger vocabulary.",
        )
    metadata = metadata_of(small, shape, quantisation)
    _extend_vocabulary(metadata, vocabulary)
    write_model(path, metadata, _random_parts(small, shape, vocabulary), Form(quantisation, shape.layers))
    return path


def _extend_vocabulary(metadata: dict[str, Value], vocabulary: int) -> None:
    """Add ordinary tokens that no merge makes."""
    tokens, types = (metadata[f"tokenizer.ggml.{key}"] for key in ("tokens", "token_type"))
    more = range(len(tokens.value), vocabulary)
    normal = int(gguf_package().TokenType.NORMAL)
    metadata["tokenizer.ggml.tokens"] = tokens._replace(value=[*tokens.value, *(f"<{i}>" for i in more)])
    metadata["tokenizer.ggml.token_type"] = types._replace(value=[*types.value, *(normal for _ in more)])
    size = f"{ARCHITECTURE}.vocab_size"
    metadata[size] = metadata[size]._replace(value=vocabulary)


def _random_parts(small: Source, shape: Shape, vocabulary: int) -> Iterator[Part]:
    rng = np.random.default_rng(1)
    yield {
        "token_embd.weight": rng.standard_normal((vocabulary, shape.width), np.float32) * NOISE,
        "output_norm.weight": np.ones(shape.width, np.float32),
    }
    yield from [random_layer(shape, small.head_size)] * shape.layers
