"""One sequence of an MLX model as bytes: the cells of its row in every attention layer."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import msgspec

from localspec.errors import EngineError


class SavedArray(msgspec.Struct, array_like=True, frozen=True):
    """An array's numbers as they lie in memory; ``dtype`` is MLX's name of their type."""

    dtype: str
    shape: tuple[int, ...]
    numbers: bytes


class Saved(msgspec.Struct, array_like=True, frozen=True):
    """A sequence of ``length`` tokens, ``written`` cells ever written, and the arrays of each layer."""

    length: int
    written: int
    layers: tuple[tuple[SavedArray, ...], ...]


_decoder = msgspec.msgpack.Decoder(Saved)


def pack(length: int, written: int, layers: Sequence[Sequence[mx.array]]) -> bytearray:
    """Return a sequence as bytes."""
    saved = Saved(length, written, tuple(tuple(_saved(array) for array in layer) for layer in layers))
    return bytearray(msgspec.msgpack.encode(saved))


def unpack(state: bytearray) -> tuple[int, int, list[list[mx.array]]]:
    """Return the arguments of :func:`pack`; raises :class:`EngineError` for bytes of any other format."""
    try:
        saved = _decoder.decode(state)
        layers = [[_array(each) for each in layer] for layer in saved.layers]
    except (msgspec.MsgspecError, ValueError, TypeError, AttributeError) as error:
        raise EngineError(f"the saved sequence cannot be restored: {error}") from None
    return saved.length, saved.written, layers


def _saved(array: mx.array) -> SavedArray:
    dtype = str(array.dtype).removeprefix("mlx.core.")
    return SavedArray(dtype, array.shape, bytes(memoryview(mx.contiguous(array).view(mx.uint8))))


def _array(saved: SavedArray) -> mx.array:
    dtype = getattr(mx, saved.dtype)
    if not isinstance(dtype, mx.Dtype):
        raise ValueError(f"unknown type of numbers {saved.dtype[:20]!r}")
    shape = (*saved.shape[:-1], saved.shape[-1] * dtype.size)
    return mx.array(memoryview(saved.numbers), mx.uint8).reshape(shape).view(dtype)
