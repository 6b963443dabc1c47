"""Control tokens of a chat: made by the template's own text alone, never by names that its contents spell."""

from __future__ import annotations

import re
from functools import cached_property
from itertools import groupby
from typing import Any

from localspec.backends.base import Vocabulary
from localspec.backends.typed import NEVER, any_of
from localspec.errors import InvalidOptions

GUARD = "\ufdd0"
"""stands behind the first character of a name in a content: a noncharacter, which templates leave as it is"""
FOREIGN = "\ufffd"
"""takes the place of a guard that a content brings along"""


class Markup:
    """Guards contents before a template is rendered with them, and encodes what it made of them."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def guarded(self, content: Any) -> Any:
        """A text with a guard in each name of a control token, or a value of JSON with such texts.

        Raises :class:`InvalidOptions` for a value that is nested too deep.
        """
        try:
            return self._guarded(content)
        except RecursionError:
            raise InvalidOptions(
                "the chat template's variables are nested too deep", "Flatten them."
            ) from None

    def encode(self, text: str) -> list[int]:
        """The tokens of a rendering with guarded contents: those of the whole text where nothing is guarded,
        as control tokens part a text for its tokenizer. What stands between two of them is encoded without
        special tokens if it has a guard."""
        if GUARD not in text:
            return self._vocabulary.encode(text, special=True)
        runs = groupby(filter(None, self._names.split(text)), lambda part: GUARD in part)
        texts = (("".join(run).replace(GUARD, ""), not has) for has, run in runs)
        return [token for text, special in texts for token in self._vocabulary.encode(text, special=special)]

    def _guarded(self, content: Any) -> Any:
        if isinstance(content, str):
            return self._beginnings.sub(lambda found: found[0] + GUARD, content.replace(GUARD, FOREIGN))
        if isinstance(content, dict):
            return {self._guarded(key): self._guarded(value) for key, value in content.items()}
        return [self._guarded(each) for each in content] if isinstance(content, list | tuple) else content

    @cached_property
    def _all_names(self) -> list[str]:
        """The names of all control tokens."""
        vocabulary = self._vocabulary
        marks = vocabulary.special_tokens | vocabulary.marks
        names = {vocabulary.text_of(token).decode("utf-8", "replace") for token in marks}
        return sorted(name for name in names if len(name) > 1)

    @cached_property
    def _names(self) -> re.Pattern[str]:
        return re.compile(f"({any_of(self._all_names)})")

    @cached_property
    def _beginnings(self) -> re.Pattern[str]:
        """Finds the first characters of names, also of overlapping ones."""
        rests = groupby(self._all_names, lambda name: name[0])
        found = (f"{re.escape(first)}(?={any_of([name[1:] for name in names])})" for first, names in rests)
        return re.compile("|".join(found) or NEVER)
