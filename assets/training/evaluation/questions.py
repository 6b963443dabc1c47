"""Questions about the library in wordings not trained for that name, and about unknown names."""

import random
from typing import Any

from ..library import Entry
from ..questions import EXPLAIN, UNKNOWN, WORDINGS, answer, is_held_back, unknown_names
from .answers import Answer, Answerer, Scores, share, word_f1

ANSWER_TOKENS = 220
RIGHT = 0.9  # of word_f1


def held_back_questions(entries: list[Entry], count: int, seed: int) -> list[tuple[Entry, str]]:
    """Names with a wording that training never joined."""
    pairs = [
        (entry, wording) for entry in entries for wording in WORDINGS if is_held_back(entry.path, wording)
    ]
    return random.Random(f"held-back questions {seed}").sample(pairs, count)


def sentence_found(given: str, entry: Entry, wording: str) -> bool:
    """True if the answer holds the docstring's first sentence, where the wording wants it."""
    if wording in EXPLAIN:
        right = " ".join(entry.sentences)
        return word_f1(given.partition("\n\n")[2], right) >= RIGHT
    return word_f1(given.rsplit("```\n", 1)[-1], entry.sentences[0]) >= RIGHT


def score_questions(model: Answerer, entries: list[Entry], count: int, seed: int) -> dict[str, Any]:
    """Shares of answers with the right sentences, of exact ones, and of those that ended."""
    scores = Scores("first_sentence", "exact", "ended")
    for entry, wording in held_back_questions(entries, count, seed):
        question = wording.format(path=entry.path)
        given = model.answer(question, ANSWER_TOKENS)
        right = answer(entry, wording)
        example = {"question": question, "answer": given.text, "right": right}
        is_found = sentence_found(given.text, entry, wording)
        scores.add(example, is_found, given.text == right, given.ended)
    return scores.figures()


def score_unknown(
    model: Answerer, entries: list[Entry], words: list[str], count: int, seed: int
) -> dict[str, Any]:
    """The shares of invented names that are refused, and refused with the very name."""
    rng = random.Random(f"held-back unknown {seed}")
    answers: list[tuple[str, Answer]] = []
    for path in unknown_names(entries, words, count, f"held back {seed}"):
        answers.append((path, model.answer(rng.choice(WORDINGS).format(path=path), ANSWER_TOKENS)))
    opening = UNKNOWN.partition("`")[0]
    return {
        "count": count,
        "refused": share([given.text.startswith(opening) for _, given in answers]),
        "exact": share([given.text == UNKNOWN.format(path=path) for path, given in answers]),
        "ended": share([given.ended for _, given in answers]),
        "examples": [{"name": path, "answer": given.text} for path, given in answers],
    }
