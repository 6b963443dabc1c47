"""Small models of the same family that may draft for a large one, by their names.

The table has families whose small models share the tokenizer. Mixtures of experts are not in it: a token
takes them little more time than their drafts. Loading checks that a pair matches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

LEAST_RATIO, MOST_RATIO = 5, 30
_SIZE = r"(?P<size>\d+(?:\.\d+)?)(?P<unit>[BbMm])"


class Family(NamedTuple):
    """A pattern of names with a size in the middle, and the names of the family's small models."""

    names: re.Pattern[str]
    named: str
    small: tuple[str, ...]


def _family(names: str, named: str, *small: str) -> Family:
    return Family(re.compile(names.replace("SIZE", _SIZE), re.IGNORECASE), named, small)


FAMILIES = (
    _family(r"Qwen2\.5-Coder-SIZE", "Qwen2.5-Coder-{}", "0.5B", "1.5B", "3B"),
    _family(r"Qwen2\.5-SIZE", "Qwen2.5-{}", "0.5B", "1.5B", "3B"),
    _family(r"Qwen3-SIZE(?!-A\d)", "Qwen3-{}", "0.6B", "1.7B", "4B"),
    _family(r"(Meta-)?Llama-3\.[123]-SIZE", "Llama-3.2-{}", "1B", "3B"),
    _family(r"gemma-3-SIZE", "gemma-3-{}", "270m", "1b", "4b"),
    _family(r"SmolLM2-SIZE", "SmolLM2-{}", "135M", "360M"),
)


def candidates(repo: str) -> Iterator[str]:
    """Repositories of models 5 to 30 times smaller, the smallest first: the same name with another size."""
    for family in FAMILIES:
        if found := family.names.search(repo, repo.rfind("/") + 1):
            size = _billions(found["size"] + found["unit"])
            for small in family.small:
                if LEAST_RATIO <= size / _billions(small) <= MOST_RATIO:
                    yield repo[: found.start()] + family.named.format(small) + repo[found.end() :]
            return


def _billions(size: str) -> float:
    return float(size[:-1]) / (1000 if size[-1] in "Mm" else 1)
