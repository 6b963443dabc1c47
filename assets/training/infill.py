"""Fill-in-the-middle lessons cut where editors ask: the rest of a line, or of a block."""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from .chat import END_OF_TEXT, FIM_MIDDLE, FIM_PREFIX, FIM_SUFFIX, Example, Piece
from .corpus import SourceFile
from .presets import Stream

SHORTEST_PREFIX = 60  # characters
MOST_AROUND = (900, 500)  # characters before and after a middle
BLOCK_SHARE = 0.3
MOST_BLOCK_LINES = 6
LINE_START_SHARE = 0.35  # cuts right behind the indentation
INSIDE_WORDS = 0.15  # of the other cuts, by default: a word that is being typed
WORD_OR_SIGN = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class FimPieces:
    """A span cut in three: prefix + middle + suffix is the span again."""

    prefix: str
    middle: str
    suffix: str


def indentation(line: str) -> int:
    """The number of blanks in front of a line."""
    return len(line) - len(line.lstrip(" "))


def block_end(lines: list[str], first: int) -> int:
    """The index behind the block that goes on at line `first`, at most MOST_BLOCK_LINES long."""
    depth = indentation(lines[first])
    end = first + 1
    while end < len(lines) and end - first < MOST_BLOCK_LINES:
        if not lines[end].strip() or indentation(lines[end]) < depth:
            break
        end += 1
    return end


def cut_place(line: str, inside_words: float, rng: random.Random) -> int:
    """An index into a line, behind its indentation; at a word's beginning unless by `inside_words`."""
    start = indentation(line)
    if rng.random() < LINE_START_SHARE:
        return start
    if rng.random() < inside_words:
        return rng.randint(start, len(line) - 1)
    return rng.choice([match.start() for match in WORD_OR_SIGN.finditer(line)])


def cut(
    lines: list[str],
    first: int,
    rng: random.Random,
    around: tuple[int, int] = MOST_AROUND,
    inside_words: float = INSIDE_WORDS,
) -> FimPieces:
    """Cut the text of `lines` within line `first`, up to the end of that line or of its block.

    The prefix and the suffix are of random lengths of at most around[0] and around[1] characters.
    """
    line = lines[first]
    start = cut_place(line, inside_words, rng)
    end = block_end(lines, first) if rng.random() < BLOCK_SHARE else first + 1
    before, after = "".join(lines[:first]), "".join(lines[end:])
    middle = line[start:] + "".join(lines[first + 1 : end])
    # The line feed stays in the suffix: an editor's cursor is in front of it.
    prefix = (before + line[:start])[-rng.randint(SHORTEST_PREFIX, around[0]) :]
    suffix = ("\n" + after)[: rng.randint(0, around[1])]
    return FimPieces(prefix, middle.removesuffix("\n"), suffix)


def context_of(pieces: FimPieces) -> str:
    """The prompt: prefix first, then the suffix."""
    return FIM_PREFIX + pieces.prefix + FIM_SUFFIX + pieces.suffix + FIM_MIDDLE


def fim_example(pieces: FimPieces) -> Example:
    """Prefix, suffix, middle; the middle and its end are taught."""
    return [Piece(context_of(pieces), False), Piece(pieces.middle + END_OF_TEXT, True)]


def fim_examples(files: list[SourceFile], stream: Stream, seed: str) -> Iterator[Example]:
    """One example in about every `every` lines of the files, in random order, `passes` times."""
    texts = [file.text.splitlines(keepends=True) for file in files]
    places = [
        (index, number)
        for index, lines in enumerate(texts)
        for number, line in enumerate(lines)
        if line.strip() and line.endswith("\n")
    ]
    for number in range(stream.passes):
        rng = random.Random(f"middles {seed} {number}")
        for index, first in rng.sample(places, len(places) // stream.every):
            lines = texts[index]
            start = max(0, first - 60)
            pieces = cut(lines[start : first + 40], first - start, rng, stream.around, stream.inside_words)
            if pieces.middle:
                yield fim_example(pieces)
