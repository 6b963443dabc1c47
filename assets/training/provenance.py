"""The description of what an output was made from, kept beside it or in it: a stage whose description is
another now is done again."""

import hashlib
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from safetensors import safe_open

from .presets import Phase, Preset, Stream

LESSONS = ("chat", "copying", "corpus", "edits", "examples", "infill", "lessons", "library", "next_edit")
LESSONS += ("questions", "renames", "tools", "words")  # modules that decide what a stream's rows hold
MADE_FROM = "made_from"


def stated(value: Stream | Phase) -> dict[str, Any]:
    """The fields that differ from their defaults: a field that is added later changes no description."""
    return {
        field.name: getattr(value, field.name)
        for field in fields(value)
        if getattr(value, field.name) != field.default
    }


def file_hash(path: Path) -> str:
    """A file's SHA-256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def origin_of_rows(stream: Stream, preset: Preset, tokenizer: Path) -> dict[str, Any]:
    """All that decides a stream's rows, as plain JSON values; "code" is that of all lessons."""
    code = hashlib.sha256()
    for name in LESSONS:
        code.update(Path(__file__).with_name(f"{name}.py").read_bytes())
    origin = {
        "stream": stated(stream),
        "library": [preset.files, preset.hold_back_every, preset.entries, preset.seed],
        "tokenizer": file_hash(tokenizer),
        "code": code.hexdigest(),
    }
    return dict(json.loads(json.dumps(origin)))


def has_rows_of(output: Path, origin: dict[str, Any], notice: Callable[[str], None]) -> bool:
    """True for a file of rows that was made from `origin`, or says nothing of that.

    Rows by other code are kept, with a notice: most changes of code are no changes of the rows.
    """
    description = output.with_suffix(".json")
    if not output.exists() or not description.exists():
        return False
    before = json.loads(description.read_text("utf-8")).get(MADE_FROM)
    if before is None:
        notice("says not what it was made from, taken as it is")
        return True
    if {**before, "code": None} != {**origin, "code": None}:
        notice("made from other settings, made anew")
        return False
    if before["code"] != origin["code"]:
        notice("made by other code of the lessons, taken as it is; remove it to make it anew")
    return True


def is_trained(weights: Path, run: list[str], phases: Iterable[Phase], notice: Callable[[str], None]) -> bool:
    """True for weights of a run of `phases` described by `run`, or such that say nothing of their run."""
    if not weights.exists():
        return False
    with safe_open(weights, framework="np") as file:
        metadata = file.metadata() or {}
    if "run" not in metadata:
        notice("says not what it was made from, taken as it is")
        return True
    steps = sum(phase.steps for phase in phases)
    if json.loads(metadata["run"]) == run and int(metadata["total"]) >= steps:
        return True
    notice("made by other phases, goes on")
    return False


def tell(label: str) -> Callable[[str], None]:
    """Prints what is to be known of an output."""
    return lambda text: print(f"{label}: {text}", file=sys.stderr, flush=True)
