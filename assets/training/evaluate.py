"""The abilities of a model in figures, appended to a log and printed.

python -m assets.training.evaluate MODEL.gguf [--count 40] [--log FILE]
python -m assets.training.evaluate --weights W.safetensors --tokenizer T.json --preset cpu
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import safe_open

from .corpus import library_files, split_files
from .evaluation.answers import Answerer
from .evaluation.middles import held_back_gaps, score_middles
from .evaluation.next_edits import next_edit_tasks, score_next_edits
from .evaluation.questions import score_questions, score_unknown
from .evaluation.renames import LENGTHS, invented_tasks, rename_tasks, score_renames
from .evaluation.tools import PLAIN_TASKS, invented_tool_tasks, score_calls, score_results
from .export import export
from .lessons import Lessons
from .presets import PRESETS, Preset

Test = Callable[[Answerer], dict[str, Any]]


def tests_of(preset: Preset, count: int, seed: int) -> dict[str, Test]:
    """Every ability's test by name; `count` tasks each."""
    lessons = Lessons(preset)
    entries, words = lessons.entries, lessons.words
    _, held_back = split_files(library_files(preset.files), preset.hold_back_every)
    tests: dict[str, Test] = {
        "questions": lambda model: score_questions(model, entries, count, seed),
        "unknown": lambda model: score_unknown(model, entries, words, count, seed),
        "invented renames": lambda model: score_renames(model, invented_tasks(count, words, seed)),
        "middles": lambda model: score_middles(model, held_back_gaps(held_back, count, seed)),
    }
    calls = invented_tool_tasks(count, words, seed)
    tests["next edits"] = lambda model: score_next_edits(model, next_edit_tasks(count, words, seed))
    tests["tool calls"] = lambda model: score_calls(model, calls)
    tests["plain tool calls"] = lambda model: score_calls(model, list(PLAIN_TASKS))
    tests["tool results"] = lambda model: score_results(model, calls, words, seed)
    for lines in LENGTHS:
        tasks = rename_tasks(lines, max(1, count // 2), seed)
        name = f"renames of {lines[0]} to {lines[1]} lines"
        tests[name] = lambda model, tasks=tasks: score_renames(model, tasks)
    return tests


def evaluate(
    path: Path, preset: Preset, *, count: int, seed: int, only: list[str] | None = None
) -> dict[str, Any]:
    """All figures of a GGUF, with the answers."""
    model = Answerer(path, preset.context)
    results = {}
    for name, test in tests_of(preset, count, seed).items():
        if not only or any(part in name for part in only):
            started = time.monotonic()
            results[name] = test(model)
            results[name]["seconds"] = round(time.monotonic() - started, 1)
    return results


def export_weights(preset: Preset, weights: Path, tokenizer: Path, folder: Path) -> Path:
    """A GGUF of a training run's weights."""
    shape = preset.target.shape
    export(shape, weights=weights, tokenizer=tokenizer, context=preset.context, folder=folder / shape.name)
    return folder / shape.name / f"{shape.name}.gguf"


def tokens_seen(weights: Path | None) -> int:
    """The tokens that a training run's weights have seen; 0 where they do not tell."""
    if weights is None:
        return 0
    with safe_open(weights, framework="np") as file:
        return int((file.metadata() or {}).get("tokens", 0))


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Measure every ability of a model of the pair.")
    parser.add_argument("model", type=Path, nargs="?", help="a GGUF of the pair")
    parser.add_argument("--weights", type=Path, help="weights of a training run, in place of a GGUF")
    parser.add_argument("--tokenizer", type=Path, help="the tokenizer.json of these weights")
    parser.add_argument("--preset", choices=PRESETS, default="cpu", help="the recipe (default: cpu)")
    parser.add_argument("--count", type=int, default=40, help="tasks of each test (default 40)")
    parser.add_argument("--seed", type=int, default=1, help="the draw of the tasks (default 1)")
    parser.add_argument("--only", nargs="*", help="tests whose name contains one of these")
    parser.add_argument("--note", default="", help="text beside the figures in the log")
    parser.add_argument("--log", type=Path, help="file to append the figures to, a JSON line each time")
    parser.add_argument("--answers", type=Path, help="file to write all answers to")
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    preset = PRESETS[arguments.preset]
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.model or export_weights(preset, arguments.weights, arguments.tokenizer, Path(folder))
        results = evaluate(path, preset, count=arguments.count, seed=arguments.seed, only=arguments.only)
    if arguments.answers:
        arguments.answers.write_text(json.dumps(results, indent=1), "utf-8")
    for figures in results.values():
        figures.pop("examples")
    line = {"tokens": tokens_seen(arguments.weights), "note": arguments.note, **results}
    if arguments.log:
        with arguments.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    print("\n".join(f"{name:28} {figures}" for name, figures in line.items()))


if __name__ == "__main__":
    main()
