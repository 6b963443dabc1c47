"""The abilities' tests: tasks apart from training, and figures of a real model."""

import json
from pathlib import Path

import pytest

from assets.training import corpus, edits, words
from assets.training.errors import RecipeError
from assets.training.evaluation import middles, next_edits, renames, tools
from assets.training.evaluation.answers import Answerer, word_f1

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "assets" / "models" / "stdlib-6m" / "stdlib-6m.gguf"


@pytest.fixture(scope="module")
def model() -> Answerer:
    return Answerer(TARGET, context=1024)


@pytest.fixture(scope="module")
def vocabulary() -> list[str]:
    return words.common_words(file.text for file in corpus.library_files(24))


@pytest.mark.parametrize(
    ("text", "right", "expected"),
    [("a b c", "a b c", 1.0), ("a b", "a b c d", 2 / 3), ("x", "a", 0.0), ("", "a", 0.0)],
)
def test_word_f1(text: str, right: str, expected: float) -> None:
    assert word_f1(text, right) == pytest.approx(expected)


@pytest.mark.slow
def test_rename_tasks_are_of_their_length_and_repeatable() -> None:
    for lines in renames.LENGTHS:
        tasks = renames.rename_tasks(lines, 10, seed=1)
        assert tasks == renames.rename_tasks(lines, 10, seed=1)
        for task in tasks:
            assert lines[0] <= task.before.count("\n") <= lines[1]
            assert task.after == edits.rename(task.before, task.old, task.new) != task.before


@pytest.mark.slow
def test_too_many_tasks_are_refused_with_the_remedy() -> None:
    with pytest.raises(RecipeError, match="install more of rich"):
        renames.rename_tasks((3, 6), 10**6, seed=1)


@pytest.mark.slow
def test_a_model_is_measured_by_its_answers(model: Answerer, vocabulary: list[str]) -> None:
    """The shipped weights are measured; a right answer put in their place would count as right."""
    files = corpus.library_files(24)
    renaming = renames.score_renames(model, renames.invented_tasks(2, vocabulary, seed=1))
    filling = middles.score_middles(model, middles.held_back_gaps(files, 2, seed=1))
    editing = next_edits.score_next_edits(model, next_edits.next_edit_tasks(2, vocabulary, seed=1))
    for figures in (renaming, filling, editing):
        assert figures["count"] == len(figures["examples"]) == 2
        right = [example["answer"] == example["right"] for example in figures["examples"]]
        assert figures["exact"] == pytest.approx(sum(right) / 2, abs=0.01)
        assert all(example["answer"] for example in figures["examples"])


def test_calls_are_judged_by_their_arguments(model: Answerer) -> None:
    assert tools.parsed_call('<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>') == {
        "name": "f",
        "arguments": {},
    }
    assert tools.parsed_call("I cannot call that.") is None
    for task in tools.PLAIN_TASKS:
        assert task.tool in task.tools
        assert set(task.arguments) == set(task.tool.parameters)
        assert all(json.dumps(value).strip('"') in task.request for value in task.arguments.values())
    figures = tools.score_calls(model, list(tools.PLAIN_TASKS[:2]))
    assert 0 <= figures["exact"] <= figures["valid"] <= 1
