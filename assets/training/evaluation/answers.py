"""Greedy answers of a GGUF, and the figures that several tests share."""

from collections import Counter
from collections.abc import Sequence
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


class Scores:
    """The answers to a test's tasks as examples, each with a value, 0 to 1, of every one of `names`."""

    def __init__(self, *names: str) -> None:
        self._values: dict[str, list[float]] = {name: [] for name in names}
        self._examples: list[dict[str, Any]] = []

    def add(self, example: dict[str, Any], *values: float) -> None:
        """Add an answer, with its values in the order of the names."""
        self._examples.append(example)
        for kept, value in zip(self._values.values(), values, strict=True):
            kept.append(value)

    def figures(self) -> dict[str, Any]:
        """The number of answers, the mean of each value, and the examples."""
        means = {name: share(values) for name, values in self._values.items()}
        return {"count": len(self._examples), **means, "examples": self._examples}


def share(values: Sequence[float]) -> float:
    """The mean of values, of flags the share of true ones, to three places; 0 of none."""
    return round(sum(values) / len(values), 3) if values else 0.0
