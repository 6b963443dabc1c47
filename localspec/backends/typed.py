"""Names of special tokens that people typed: they are text, whatever a tokenizer makes of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise


class TypedNames:
    """``names`` of the special tokens that a tokenizer takes for those wherever their names stand, though it
    is told to find none: such as a model's files call added, or the user's, but not special."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self._tokens = names.keys()
        self._names = re.compile(f"(?={'|'.join(map(re.escape, names.values()))})")

    def encode(self, text: str, encode: Callable[[str], list[int]]) -> list[int]:
        """The tokens of ``text``, by ``encode``, with none of the special ones."""
        tokens = encode(text)
        if not self._tokens or self._tokens.isdisjoint(tokens):
            return tokens
        # Behind its first character no name is whole.
        cuts = [0, *(match.start() + 1 for match in self._names.finditer(text)), len(text)]
        return [token for start, end in pairwise(cuts) for token in encode(text[start:end])]
