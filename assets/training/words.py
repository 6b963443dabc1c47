"""Words and identifiers as programmers write them, drawn by chance."""

import random
import re
from collections import Counter
from collections.abc import Iterable

WORD = re.compile(r"[A-Z]?[a-z]{2,}")
KINDS = (
    ("one", 40),
    ("two", 30),
    ("three", 6),
    ("camel", 5),
    ("class", 7),
    ("private", 5),
    ("constant", 4),
    ("letter", 3),
)


def common_words(texts: Iterable[str], most: int = 6000) -> list[str]:
    """The lower-case words that identifiers in `texts` are made of, the most frequent first."""
    counts = Counter(word.lower() for text in texts for word in WORD.findall(text))
    ordered = sorted(counts, key=lambda word: (-counts[word], word))
    return ordered[:most]


class Identifiers:
    """A source of random identifiers out of a list of words."""

    def __init__(self, words: list[str], rng: random.Random) -> None:
        self._words, self._rng = words, rng
        self._kinds, self._weights = zip(*KINDS, strict=True)

    def word(self) -> str:
        """A word; half of the time a frequent one."""
        frequent = self._rng.random() < 0.5
        return self._rng.choice(self._words[:800] if frequent else self._words)

    def identifier(self) -> str:
        """An identifier of one to three words in one of the usual spellings."""
        kind = self._rng.choices(self._kinds, self._weights)[0]
        first, second, third = self.word(), self.word(), self.word()
        return {
            "one": first,
            "two": f"{first}_{second}",
            "three": f"{first}_{second}_{third}",
            "camel": first + second.title(),
            "class": first.title() + self._rng.choice(("", second.title())),
            "private": f"_{first}",
            "constant": f"{first}_{second}".upper(),
            "letter": self._rng.choice("abcdefghijkmnpqrstuvwxyz") + self._rng.choice(("", "", "1", "2")),
        }[kind]

    def several(self, count: int) -> list[str]:
        """`count` different identifiers."""
        found: dict[str, None] = {}
        while len(found) < count:
            found[self.identifier()] = None
        return list(found)
