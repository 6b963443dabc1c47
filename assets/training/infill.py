"""Fill-in-the-middle examples: a span cut in three, in one of two orders."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from .chat import END_OF_TEXT, FIM_MIDDLE, FIM_PREFIX, FIM_SUFFIX

SHORTEST_SPAN = 120  # characters; below this there is nothing to learn between two cuts
LINE_END_SHARE = 0.7  # editors ask mostly for the rest of a line or of a few lines


@dataclass(frozen=True, slots=True)
class FimPieces:
    """A span cut in three: prefix + middle + suffix is the span again."""

    prefix: str
    middle: str
    suffix: str


def cut_spans(text: str, lengths: tuple[int, int], rng: random.Random) -> Iterator[str]:
    """Cut `text` into consecutive spans of lengths[0] to lengths[1] characters."""
    start = 0
    while start < len(text):
        length = rng.randint(*lengths)
        yield text[start : start + length]
        start += length


def split_span(span: str, rng: random.Random) -> FimPieces:
    """Cut a span of at least SHORTEST_SPAN characters at two random places."""
    start = rng.randint(20, len(span) - 60)
    if rng.random() < LINE_END_SHARE:
        line_end = span.find("\n", start + rng.randint(0, 60))
        end = line_end if line_end > 0 else min(len(span), start + 60)
    else:
        end = min(len(span), start + rng.randint(10, 200))
    return FimPieces(span[:start], span[start:end], span[end:])


def format_fim(pieces: FimPieces, *, suffix_first: bool) -> str:
    """The training text; the middle always comes last.

    Prefix first is Qwen2.5-Coder's order; suffix first is the order of llama.cpp's
    `--spm-infill`, in which a growing prefix leaves the suffix's part of the KV cache valid.
    """
    prefix, suffix = FIM_PREFIX + pieces.prefix, FIM_SUFFIX + pieces.suffix
    context = suffix + prefix if suffix_first else prefix + suffix
    return f"{context}{FIM_MIDDLE}{pieces.middle}{END_OF_TEXT}"


def code_example(span: str, *, fim_share: float, suffix_first_share: float, rng: random.Random) -> str:
    """A span as plain text or, with probability `fim_share`, as a fill-in-the-middle example."""
    if len(span) <= SHORTEST_SPAN or rng.random() >= fim_share:
        return span + END_OF_TEXT
    suffix_first = rng.random() < suffix_first_share
    return format_fim(split_span(span, rng), suffix_first=suffix_first)
