"""Valid inputs, damaged at random: what a fuzzer feeds to whatever reads them."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from hypothesis import strategies as st

JSON_PIECES = (
    *(b"null", b"true", b"[]", b"{}", b'""', b"-0", b"1e999", b"-1e-999", b"NaN", b"Infinity", b"\xff"),
    *(b"9" * 30, b"-" + b"1" * 400, b"9" * 5000, b"18446744073709551616", b"0.1", b"01", b"\0", b"\xc3"),
    *(rb'"\ud800"', rb'"\udfff\ud800"', rb'"\u0000"', b'"\xed\xa0\x80"', "\u2028\ufeff😀".encode()),
    *(b'"id":1,"id":2,', b'"method":"metrics",', b'"jsonrpc":"1.0",', b'"params":', b'"result":1,'),
    *(b"[" * 200, b"[" * 100_000, b'{"a":' * 50_000, b"x" * 5000, b"//", b",,", b"}{", b"\r\n"),
)

FLIPS = st.lists(st.tuples(st.integers(0, 2**32), st.integers(0, 255)), min_size=1, max_size=4)
"""places in a content, and the bytes that are put there"""


def flipped(content: bytes, flips: Sequence[tuple[int, int]]) -> bytes:
    damaged = bytearray(content)
    for place, byte in flips:
        damaged[place % len(damaged)] = byte
    return bytes(damaged)


@contextmanager
def little_memory() -> Iterator[None]:
    """Fail if the reading of a hostile file takes 10 MB."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


class Mutator(Iterator[bytes]):
    """An endless stream of damaged ``examples``; the same for the same ``seed``.

    ``pieces`` are put in at random: what a reader of this language stumbles over.
    """

    def __init__(self, examples: Sequence[bytes], pieces: Sequence[bytes], seed: int) -> None:
        self.rng = random.Random(seed)
        self._examples, self._pieces = examples, pieces
        self._ways: tuple[Callable[[bytearray], None], ...] = (
            *(self._change_byte, self._flip_bit, self._remove, self._repeat),
            *(self._insert_piece, self._insert_noise, self._cut_off, self._splice),
            *(self._replace_value,) * 4,
        )

    def __next__(self) -> bytes:
        """One input: an example after a few changes; now and then mere noise, or an example as it is."""
        if self.rng.random() < 0.05:
            return self.rng.randbytes(self.rng.randrange(300))
        data = bytearray(self.rng.choice(self._examples))
        for _ in range(self.rng.choice((0, 1, 1, 1, 2, 2, 3, 8))):
            self.rng.choice(self._ways)(data)
        return bytes(data)

    def _place(self, data: bytearray) -> int:
        return self.rng.randrange(len(data) + 1)

    def _range(self, data: bytearray) -> slice:
        start = self._place(data)
        return slice(start, start + self.rng.randrange(1, 20))

    def _change_byte(self, data: bytearray) -> None:
        if data:
            data[self.rng.randrange(len(data))] = self.rng.randrange(256)

    def _flip_bit(self, data: bytearray) -> None:
        if data:
            data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)

    def _remove(self, data: bytearray) -> None:
        del data[self._range(data)]

    def _repeat(self, data: bytearray) -> None:
        part = self._range(data)
        data[part.start : part.start] = data[part] * self.rng.choice((1, 2, 50))

    def _insert_piece(self, data: bytearray) -> None:
        place = self._place(data)
        data[place:place] = self.rng.choice(self._pieces)

    def _insert_noise(self, data: bytearray) -> None:
        place = self._place(data)
        data[place:place] = self.rng.randbytes(self.rng.randrange(1, 12))

    def _cut_off(self, data: bytearray) -> None:
        del data[self._place(data) :]

    def _splice(self, data: bytearray) -> None:
        other = self.rng.choice(self._examples)
        data[self._place(data) :] = other[self.rng.randrange(len(other)) :]

    def _replace_value(self, data: bytearray) -> None:
        """Replace the bytes between a colon and the next comma."""
        colons = [place for place, byte in enumerate(data) if byte == ord(":")]
        if colons:
            start = self.rng.choice(colons) + 1
            end = data.find(b",", start)
            data[start : end if end >= 0 else len(data)] = self.rng.choice(self._pieces)
