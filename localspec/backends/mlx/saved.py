"""One sequence of an MLX model as bytes: the cells of its row in every attention layer."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence

import mlx.core as mx

from localspec.errors import EngineError


def pack(length: int, written: int, layers: Sequence[Sequence[mx.array]]) -> bytearray:
    """Return a sequence of ``length`` tokens, with ``written`` cells ever written, as bytes."""
    arrays = {f"{i}.{n}": array for i, layer in enumerate(layers) for n, array in enumerate(layer)}
    facts = {"sequence": json.dumps([length, written, [len(layer) for layer in layers]])}
    file = io.BytesIO()
    mx.save_safetensors(file, arrays, facts)
    return bytearray(file.getbuffer())


def unpack(state: bytearray) -> tuple[int, int, list[list[mx.array]]]:
    """Return the arguments of :func:`pack`; raises :class:`EngineError` for bytes of any other format."""
    try:
        arrays, facts = mx.load(io.BytesIO(state), format="safetensors", return_metadata=True)
        length, written, sizes = json.loads(facts["sequence"])
        layers = [[arrays[f"{i}.{n}"] for n in range(size)] for i, size in enumerate(sizes)]
        mx.eval(layers)
    except (RuntimeError, ValueError, TypeError, KeyError) as error:
        raise EngineError(f"the saved sequence cannot be restored: {error}") from None
    return length, written, layers
