"""Next edits in functions of packages that training never saw."""

import random
from typing import Any

from ..next_edit import NextEdit, next_edit
from ..words import Identifiers
from .answers import Answerer, Scores
from .renames import unseen_functions

LINES = (3, 14)
EXTRA_TOKENS = 20


def next_edit_tasks(count: int, words: list[str], seed: int) -> list[NextEdit]:
    """`count` edits that were begun, in functions of LINES[0] to LINES[1] lines."""
    rng = random.Random(f"next edit tasks {seed}")
    identifiers = Identifiers(words, rng)
    sources = [each for each in unseen_functions() if LINES[0] <= each.count("\n") <= LINES[1]]
    rng.shuffle(sources)
    drawn = (next_edit(source, f"{identifiers.word()}.py", identifiers, rng) for source in sources)
    return [edit for edit in drawn if edit is not None][:count]


def score_next_edits(model: Answerer, tasks: list[NextEdit]) -> dict[str, Any]:
    """Shares of exact regions and of answers that ended."""
    scores = Scores("exact", "ended")
    for task in tasks:
        given = model.complete(task.prompt(), int(model.tokens(task.updated) * 1.5) + EXTRA_TOKENS)
        example = {"current": task.current, "answer": given.text, "right": task.updated}
        scores.add(example, given.text == task.updated, given.ended)
    return scores.figures()
