"""Fill-in-the-middle on the library's files that are held back from training."""

import random
from typing import Any

from ..corpus import SourceFile
from ..infill import FimPieces, context_of, cut
from .answers import Answerer, Scores

EXTRA_TOKENS = 40


def held_back_gaps(files: list[SourceFile], count: int, seed: int) -> list[FimPieces]:
    """Gaps at the ends of lines and blocks."""
    rng = random.Random(f"held-back gaps {seed}")
    found: list[FimPieces] = []
    while len(found) < count:
        lines = rng.choice(files).text.splitlines(keepends=True)
        first = rng.randrange(len(lines))
        if lines[first].strip() and lines[first].endswith("\n"):
            start = max(0, first - 60)
            pieces = cut(lines[start : first + 40], first - start, rng)
            if pieces.middle:
                found.append(pieces)
    return found


def score_middles(model: Answerer, gaps: list[FimPieces]) -> dict[str, Any]:
    """Shares of right first lines, of wholly right answers, and of those that ended in time."""
    scores = Scores("line", "exact", "ended")
    for gap in gaps:
        given = model.complete(context_of(gap), model.tokens(gap.middle) * 2 + EXTRA_TOKENS)
        line = given.text.split("\n")[0].rstrip() == gap.middle.split("\n")[0].rstrip()
        exact = given.text.rstrip() == gap.middle.rstrip()
        example = {"prefix": gap.prefix[-80:], "answer": given.text, "right": gap.middle}
        scores.add(example, line, exact, given.ended)
    return scores.figures()
