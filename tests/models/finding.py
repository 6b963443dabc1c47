"""Models as tests name them: by paths and names, compared by paths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from localspec.models import library
from localspec.models import model as models
from localspec.models.model import Format, model_at
from localspec.models.pair import Drafter, Pair
from localspec.protocol.messages import ModelDescription


def find_model(name: str, model_dirs: tuple[str, ...] = (), *, format: Format | None = None) -> Path:
    """The path of the model that a name means."""
    return library.find(name, model_dirs, format=format).path


def describe(name: str, path: Path) -> ModelDescription:
    """A model's description under a name."""
    model = model_at(path)
    return models.describe(name, model)


def shown_name(path: Path, model_dirs: tuple[str, ...] = ()) -> str:
    """The name that the list has for what lies at a path."""
    return library.find(str(path), model_dirs).name


def pair_of(target: Path, draft: Path | None, why: str, draft_why: str, *, asked: bool = True) -> Pair:
    """A pair of the models at these paths."""
    model = None if draft is None else model_at(draft)
    drafter = Drafter(model, draft_why, asked)
    return Pair(model_at(target), drafter, why)


def asking(pair: Pair, asked: bool) -> Pair:
    """Return the pair with its drafter marked as requested, or as chosen automatically."""
    return replace(pair, drafter=replace(pair.drafter, asked=asked))
