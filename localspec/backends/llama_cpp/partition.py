"""Texts cut behind special tokens, because llama.cpp's time grows with the square of their number in a text.

llama.cpp takes the texts of special tokens out of a text one after the other, the longest first
(``tokenizer_st_partition`` in src/llama-vocab.cpp), and tokenizes each text between them separately. The
text that follows a special token therefore gives the same tokens when tokenized alone. The special tokens
are found here by the same rules, in time linear in the text for each special token that occurs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

WHOLE = 4096
"""bytes of a text up to which it is not cut: it has too few special tokens to take long"""
MOST = 64
"""special tokens in one piece"""
TAKEN = b"\xff"
"""the byte that replaces the text of a special token: it does not occur in UTF-8"""
BEGINNING = 4
"""first bytes of special tokens that are searched for before the tokens themselves, often thousands"""


class Strips(NamedTuple):
    """The sides on which a special token strips blanks."""

    left: bool = False
    right: bool = False


class Partition:
    """Cuts texts behind ``special`` tokens, given by their texts."""

    def __init__(self, special: Mapping[bytes, Strips]) -> None:
        self._special = special

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Cut ``data`` into pieces whose tokens, one after the other, are those of the whole."""
        begin, count = 0, 0
        for end, next in self._ends(data) if len(data) > WHOLE else ():
            count += 1
            if end - begin >= WHOLE or count == MOST:
                yield data[begin:end]
                begin, count = next, 0
        if begin < len(data):
            yield data[begin:]

    def _ends(self, data: bytes) -> list[tuple[int, int]]:
        """(end, beginning of what follows) of each special token in ``data``, in order."""
        present = [text for text in self._candidates(data) if text in data]
        if len(self._ambiguous.intersection(present)) > 1:
            return []
        left, ends = bytearray(data), list[tuple[int, int]]()
        for text in present:
            strips, taken = self._special[text], TAKEN * len(text)
            at = left.find(text)
            while at >= 0:
                end = at + len(text)
                left[at:end] = taken
                if strips.left:
                    _strip(left, range(at - 1, -1, -1))
                ends.append((end, _strip(left, range(end, len(left))) if strips.right else end))
                at = left.find(text, end)
        return sorted(ends)

    def _candidates(self, data: bytes) -> list[bytes]:
        """The special tokens whose first bytes occur in ``data``, the longest first."""
        found = [text for first, texts in self._by_beginning.items() if first in data for text in texts]
        return sorted(found, key=len, reverse=True)

    @cached_property
    def _by_beginning(self) -> dict[bytes, list[bytes]]:
        found = defaultdict[bytes, list[bytes]](list)
        for text in self._special:
            found[text[:BEGINNING]].append(text)
        return found

    @cached_property
    def _ambiguous(self) -> frozenset[bytes]:
        """Special tokens of equal length that can overlap: llama.cpp's order of these is not reproduced."""
        by_length = groupby(sorted(self._special, key=len), key=len)
        return frozenset(text for _, texts in by_length for text in _overlapping(list(texts)))


def _strip(left: bytearray, places: range) -> int:
    """Replace blanks at ``places`` up to the first other byte; return the place of that byte."""
    for place in places:
        if not left[place : place + 1].isspace():
            return place
        left[place : place + 1] = TAKEN
    return places.stop


def _overlapping(texts: list[bytes]) -> Iterator[bytes]:
    """The ``texts``, all of one length, whose ends are beginnings of others."""
    begins, ends = defaultdict[bytes, set[bytes]](set), defaultdict[bytes, set[bytes]](set)
    for text in texts:
        for n in range(1, len(text)):
            begins[text[:n]].add(text)
            ends[text[-n:]].add(text)
    for part in begins.keys() & ends.keys():
        if len(both := begins[part] | ends[part]) > 1:
            yield from both
