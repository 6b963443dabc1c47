"""Greedy answers of a GGUF, and the figures that several tests share."""

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from ..chat import END_OF_TEXT, TURN_END, format_prompt, format_turn

ENDS = [TURN_END, END_OF_TEXT]


class Answer(NamedTuple):
    """A text, and whether it ended by itself."""

    text: str
    ended: bool


class Answerer:
    """A model that answers greedily."""

    def __init__(self, path: Path, context: int, threads: int = 1) -> None:
        import llama_cpp

        self._model: Any = llama_cpp.Llama(
            str(path), n_ctx=context, n_threads=threads, n_threads_batch=threads, verbose=False
        )

    def complete(self, prompt: str, most: int) -> Answer:
        """The text generated after the prompt, at most `most` tokens of it."""
        completion = self._model.create_completion(prompt, max_tokens=most, temperature=0.0, stop=ENDS)
        choice = completion["choices"][0]
        return Answer(choice["text"], choice["finish_reason"] != "length")

    def answer(self, question: str, most: int, before: list[tuple[str, str]] | None = None) -> Answer:
        """The answer to a question, after the (question, answer) pairs `before` it."""
        turns = [format_turn("user", q) + format_turn("assistant", a) for q, a in before or []]
        return self.complete("".join(turns) + format_prompt(question), most)

    def tokens(self, text: str) -> int:
        """The number of tokens of a text."""
        return len(self._model.tokenize(text.encode(), add_bos=False, special=True))


def word_f1(text: str, right: str) -> float:
    """The harmonic mean of precision and recall over words, 0 to 1."""
    ours, theirs = Counter(text.split()), Counter(right.split())
    common = (ours & theirs).total()
    return 2 * common / max(1, ours.total() + theirs.total())


def share(values: list[bool]) -> float:
    """The share of true values, to three places; 0 of none."""
    return round(sum(values) / len(values), 3) if values else 0.0
