"""Renames in real code: one, or several in a row in a conversation."""

import random
import re
from collections.abc import Callable, Iterator

from .chat import Example, chat_example
from .corpus import SourceFile, definitions
from .edits import (
    CONVERSATION_OPENERS,
    FIRST_REQUESTS,
    FOLLOW_UPS,
    NOT_RENAMED,
    RenameEdit,
    fresh_name,
    mentions,
    rename,
    repeated_names,
)
from .words import Identifiers

MOST_MENTIONS = 16
ANY_NAME_SHARE = 0.15  # names that occur once, or have capitals
INVENTED_SHARE = 0.65  # new names that are not of the usual ones
CONVERSATION_SHARE = 0.3
MOST_TURNS = 4
ANY_NAME = re.compile(r"\b[A-Za-z_]\w*\b")

Drawn = Callable[[str, Identifiers, random.Random], Example | None]
"""an example of a function's source, None where there is none"""


def function_sources(files: list[SourceFile], lines: tuple[int, int]) -> list[str]:
    """The functions of lines[0] to lines[1] lines, dedented, each text once."""
    found: dict[str, None] = {}
    for file in files:
        for definition in definitions(file):
            if definition.is_function and lines[0] <= definition.source.count("\n") <= lines[1]:
                found[definition.source] = None
    return list(found)


def draw_rename(source: str, identifiers: Identifiers, rng: random.Random) -> RenameEdit | None:
    """A rename of one of the names in `source`; None where there is none to rename."""
    names = repeated_names(source, most=MOST_MENTIONS)
    if rng.random() < ANY_NAME_SHARE or not names:
        names = sorted(set(ANY_NAME.findall(source)) - NOT_RENAMED)
    if not names:
        return None
    old = rng.choice(names)
    new = identifiers.identifier() if rng.random() < INVENTED_SHARE else fresh_name(source, rng)
    if mentions(source, new):
        new = fresh_name(source, rng)
    return RenameEdit(old, new, source, rename(source, old, new))


def rename_example(source: str, turns: int, identifiers: Identifiers, rng: random.Random) -> Example | None:
    """A conversation of up to `turns` renames of the same code; None where not one is possible."""
    exchanges: list[tuple[str, str]] = []
    for turn in range(turns):
        edit = draw_rename(source, identifiers, rng)
        if edit is None:
            break
        wordings = FOLLOW_UPS if turn else rng.choice((FIRST_REQUESTS, CONVERSATION_OPENERS))
        exchanges.append((edit.request(wordings, rng), edit.answer()))
        source = edit.after
    return chat_example(exchanges) if exchanges else None


def rename_examples(
    files: list[SourceFile], lines: tuple[int, int], words: list[str], *, passes: int, seed: str
) -> Iterator[Example]:
    """`passes` examples of every function of lines[0] to lines[1] lines, in random order."""

    def drawn(source: str, identifiers: Identifiers, rng: random.Random) -> Example | None:
        turns = rng.randint(2, MOST_TURNS) if rng.random() < CONVERSATION_SHARE else 1
        return rename_example(source, turns, identifiers, rng)

    return function_examples(files, lines, words, drawn, seeds=[f"renames {seed} {n}" for n in range(passes)])


def function_examples(
    files: list[SourceFile], lines: tuple[int, int], words: list[str], drawn: Drawn, *, seeds: list[str]
) -> Iterator[Example]:
    """Draw an example from each function of lines[0] to lines[1] lines, in random order, once for each seed.

    A function for which ``drawn`` returns None gives none.
    """
    sources = function_sources(files, lines)
    for seed in seeds:
        rng = random.Random(seed)
        identifiers = Identifiers(words, rng)
        rng.shuffle(sources)
        for source in sources:
            example = drawn(source, identifiers, rng)
            if example is not None:
                yield example
