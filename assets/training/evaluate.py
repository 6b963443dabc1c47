"""How well a model renames in code that it never saw: functions of installed packages.

On its own: python -m assets.training.evaluate MODEL.gguf [--tasks 16]
"""

import argparse
import difflib
import importlib.util
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .chat import TURN_END, fenced, format_prompt
from .corpus import SourceFile, definitions
from .edits import FIRST_REQUESTS, RenameEdit, rename_one_of, repeated_names
from .errors import RecipeError
from .progress import Progress

PACKAGES = ("rich", "requests", "textual", "websockets", "click")
FUNCTION_CHARACTERS = (150, 600)
MOST_MENTIONS = 12
ANSWER_TOKENS = 400
SEED = 5


@dataclass(frozen=True, slots=True)
class RenameScore:
    """What the answers to the rename tasks were like."""

    tasks: int
    exact: int  # answers equal to the right one
    ran_to_limit: int  # answers that did not end by themselves within ANSWER_TOKENS
    too_long: int  # tasks left out: the question and its answer do not fit into the context
    mean_similarity: float  # difflib's ratio to the right answer, 0 to 1


def package_files(package: str) -> Iterator[SourceFile]:
    """The Python files of an installed package; none if it is not installed."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return
    root = Path(spec.origin).parent
    for path in sorted(root.rglob("*.py")):
        yield SourceFile(f"{package}/{path.relative_to(root).as_posix()}", path.read_text("utf-8"))


def installed_versions() -> dict[str, str]:
    """The versions of those of PACKAGES that are installed: other versions, other tasks."""
    return {name: version(name) for name in PACKAGES if importlib.util.find_spec(name)}


def unseen_functions() -> list[str]:
    """Functions of a suitable length out of the installed ones of PACKAGES, shuffled."""
    shortest, longest = FUNCTION_CHARACTERS
    functions = [
        definition.source
        for package in PACKAGES
        for file in package_files(package)
        for definition in definitions(file)
        if shortest < len(definition.source) < longest and definition.is_function
    ]
    random.Random(SEED).shuffle(functions)
    return functions


def rename_tasks(count: int) -> list[RenameEdit]:
    """`count` renames; the same ones wherever the same package versions are installed."""
    rng = random.Random(SEED)
    tasks = []
    for source in unseen_functions():
        names = repeated_names(source, most=MOST_MENTIONS)
        if names:
            tasks.append(rename_one_of(source, names, rng))
        if len(tasks) == count:
            return tasks
    raise RecipeError(f"{len(tasks)} of {count} tasks: install more of {', '.join(PACKAGES)}.")


def answer(model: Any, prompt: str) -> tuple[str, bool]:
    """The greedy answer's text, and whether it ran to the limit."""
    completion = model.create_completion(prompt, max_tokens=ANSWER_TOKENS, temperature=0.0, stop=[TURN_END])
    choice = completion["choices"][0]
    return choice["text"].strip(), choice["finish_reason"] == "length"


def score(model: Any, tasks: list[RenameEdit]) -> RenameScore:
    """Let a llama_cpp.Llama answer the tasks and compare with the right answers."""
    progress = Progress("rename tasks")
    exact = ran_to_limit = too_long = 0
    similarities: list[float] = []
    for task in tasks:
        # A fixed wording: figures of different runs stay comparable.
        prompt = format_prompt(FIRST_REQUESTS[0].format(old=task.old, new=task.new, code=fenced(task.before)))
        tokens = model.tokenize(prompt.encode(), add_bos=False, special=True)
        if len(tokens) + ANSWER_TOKENS > model.n_ctx():
            too_long += 1
            continue
        text, unfinished = answer(model, prompt)
        exact += text == task.answer()
        ran_to_limit += unfinished
        similarities.append(difflib.SequenceMatcher(None, text, task.answer()).ratio())
        if progress.due:
            progress.show(f"{len(similarities)} of {len(tasks)}")
    mean = sum(similarities) / len(similarities) if similarities else 0.0
    return RenameScore(len(similarities), exact, ran_to_limit, too_long, round(mean, 3))


def evaluate(model_path: Path, *, tasks: int, context: int) -> dict[str, Any]:
    """The score of a GGUF as JSON values, or why there is none in a `skipped` entry."""
    try:
        import llama_cpp

        renames = rename_tasks(tasks)
    except ImportError:
        return {"skipped": "llama-cpp-python is not installed"}
    except RecipeError as error:
        return {"skipped": str(error)}
    model = llama_cpp.Llama(str(model_path), n_ctx=context, n_threads=1, verbose=False)
    return {**asdict(score(model, renames)), "packages": installed_versions()}


def main() -> None:
    """Print the score of one model as JSON."""
    parser = argparse.ArgumentParser(description="Score a GGUF on renames in unseen code.")
    parser.add_argument("model", type=Path, help="a GGUF of the pair")
    parser.add_argument("--tasks", type=int, default=16, help="how many renames (default 16)")
    parser.add_argument("--context", type=int, default=2048, help="tokens (default 2048)")
    arguments = parser.parse_args()
    result = evaluate(arguments.model, tasks=arguments.tasks, context=arguments.context)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
