"""Renames in functions of packages that training never saw, by length, and of invented lines."""

import difflib
import importlib.util
import random
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..chat import fenced
from ..copying import invented_code
from ..corpus import SourceFile, definitions
from ..edits import FIRST_REQUESTS, RenameEdit, mentions, rename, rename_one_of, repeated_names
from ..errors import RecipeError
from ..words import Identifiers
from .answers import Answerer, Scores

PACKAGES = ("rich", "requests", "textual", "websockets", "click", "jinja2", "gguf")
LENGTHS = ((3, 6), (7, 12), (13, 25), (26, 60))  # lines
MOST_MENTIONS = 12


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


@cache
def unseen_functions() -> tuple[str, ...]:
    """The functions of the installed ones of PACKAGES, each text once."""
    found = {
        definition.source: None
        for package in PACKAGES
        for file in package_files(package)
        for definition in definitions(file)
        if definition.is_function
    }
    return tuple(found)


def rename_tasks(lines: tuple[int, int], count: int, seed: int) -> list[RenameEdit]:
    """`count` renames in functions of lines[0] to lines[1] lines."""
    rng = random.Random(f"rename tasks {lines} {seed}")
    sources = [each for each in unseen_functions() if lines[0] <= each.count("\n") <= lines[1]]
    rng.shuffle(sources)
    tasks = []
    for source in sources:
        names = repeated_names(source, most=MOST_MENTIONS)
        if names:
            tasks.append(rename_one_of(source, names, rng))
        if len(tasks) == count:
            return tasks
    raise RecipeError(f"{len(tasks)} of {count} tasks: install more of {', '.join(PACKAGES)}.")


def invented_tasks(count: int, words: list[str], seed: int) -> list[RenameEdit]:
    """Renames in 4 invented lines: the easiest of all, learnt first."""
    rng = random.Random(f"invented tasks {seed}")
    identifiers = Identifiers(words, rng)
    tasks: list[RenameEdit] = []
    while len(tasks) < count:
        old, new, *others = identifiers.several(6)
        source = invented_code([old, old, *others], 4, rng)
        if mentions(source, old) and not mentions(source, new):
            tasks.append(RenameEdit(old, new, source, rename(source, old, new)))
    return tasks


def score_renames(model: Answerer, tasks: list[RenameEdit]) -> dict[str, Any]:
    """The share of exact answers and of those that ended, and difflib's mean similarity."""
    scores = Scores("exact", "ended", "similarity")
    for task in tasks:
        question = FIRST_REQUESTS[0].format(old=task.old, new=task.new, code=fenced(task.before))
        right = task.answer()
        given = model.answer(question, int(model.tokens(right) * 1.5) + 20)
        similarity = difflib.SequenceMatcher(None, given.text, right, autojunk=False).ratio()
        example = {"old": task.old, "new": task.new, "answer": given.text, "right": right}
        scores.add(example, given.text == right, given.ended, similarity)
    return scores.figures()
