"""Names of special tokens that users typed: they are encoded as text, even where a tokenizer would not."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import groupby, pairwise

NEVER = "(?!)"


class TypedNames:
    """Encodes texts so that none of the special tokens ``names`` comes out. These are the tokens that a
    tokenizer finds by name even with special tokens switched off, because the model's files list them as
    added or user-defined, but not as special."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self._tokens = names.keys()
        self._names = re.compile(f"(?={any_of(sorted(names.values()))})")

    def encode(self, text: str, encode: Callable[[str], list[int]]) -> list[int]:
        """Return the tokens of ``text``, made by ``encode``, with none of the special ones."""
        tokens = encode(text)
        if not self._tokens or self._tokens.isdisjoint(tokens):
            return tokens
        # A cut behind the first character of a name leaves no whole name on either side.
        cuts = [0, *(match.start() + 1 for match in self._names.finditer(text)), len(text)]
        return [token for start, end in pairwise(cuts) for token in encode(text[start:end])]


def any_of(names: list[str]) -> str:
    """A pattern of the longest of ``names``, which are sorted: a tree by characters, as a model can have
    thousands that begin alike."""
    if not names:
        return NEVER
    rests = groupby((name for name in names if name), lambda name: name[0])
    branches = [re.escape(first) + any_of([name[1:] for name in group]) for first, group in rests]
    tree = branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
    return tree if names[0] else f"(?:{tree})?" if branches else ""
