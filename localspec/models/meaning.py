"""Which model a name means: the one place that says in what order names are looked up. What is bundled or a
path needs none of it (:func:`localspec.models.catalogue.find_model`).

1. A name in full, that of the list or of a store; the bundled models' before those in ``model_dirs``, and
   these before all others.
2. A ``family:size``, such as ``qwen2.5-coder:7b``.
3. The beginning of a name.

Upper and lower case are alike. A model that can be used comes before one that cannot: of that a name leads to
the reason alone.

Models of one family, size and variant differ in quantisation, format and store alone. Of those a name means
the one in the wanted format, then the first of :data:`PREFERRED`, as ``models pull`` chooses, then the
largest, then that of the first store. Among different models nothing is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from localspec.errors import ModelAmbiguous, ModelInvalid
from localspec.models.bundled import BUNDLED
from localspec.models.description import Format
from localspec.models.names import Parts
from localspec.models.stores.store import CONFIGURED
from localspec.protocol.messages import ModelDescription

SHOWN = 8
"""matches of an ambiguous name that are told"""
FIRST = (BUNDLED, CONFIGURED)
"""stores whose models' names nothing else takes"""


class Named(NamedTuple):
    """A model, where it lies, and what its names say; None of one that is bundled, or cannot be used."""

    model: ModelDescription
    path: Path
    """the same as the model's, which is for people and JSON: here are bytes that are no text"""
    parts: Parts | None

    @property
    def kind(self) -> tuple[str, ...]:
        """What is alike for one model in all quantisations and formats."""
        return (self.model.id,) if self.parts is None else (self.parts.short, self.parts.variant)

    def is_called(self, name: str) -> bool:
        """Whether this is one of its names in full; all names that are asked for are in lower case."""
        return name in (each.lower() for each in self.model.names)

    def is_of(self, name: str) -> bool:
        """Whether it is of this family and size."""
        return self.parts is not None and self.parts.short == name

    def begins(self, name: str) -> bool:
        """Whether one of its names begins so."""
        return any(each.lower().startswith(name) for each in self.model.names)


def meant(name: str, known: Sequence[Named]) -> list[Named]:
    """What ``name`` may stand for, the preferred first; nothing where no model has such a name."""
    wanted = name.lower()
    for matches in (Named.is_called, Named.is_of, Named.begins):
        if found := [each for each in known if matches(each, wanted)]:
            found = [each for each in found if each.model.problem is None] or found
            if matches is Named.is_called:
                first = min(map(_store, found))
                found = [each for each in found if _store(each) == first]
            return sorted(found, key=_preference)
    return []


def covered(name: str, known: Sequence[Named]) -> list[Named]:
    """What settings for ``name`` are for: all of that family and size, or else the model that is meant, in
    all quantisations and formats that are called so. Raises as :func:`chosen`."""
    family = [each for each in known if each.is_of(name.lower())]
    found = meant(name, known)
    if found and not family:
        chosen(name, found)
    return [*family, *found]


def chosen(name: str, found: Sequence[Named], format: Format | None = None) -> Named:
    """Of what ``name`` may stand for the one that it does.

    Raises :class:`ModelAmbiguous`, naming them, for different models; :class:`ModelInvalid` for a broken one.
    """
    wanted = [each for each in found if each.model.format == (format or "gguf")] or found
    # What has one name in full is one model in two formats, though their sizes may be told differently.
    rivals = wanted if all(each.is_called(name.lower()) for each in found) else found
    if len({each.kind for each in rivals}) > 1:
        names = sorted({each.model.names[0] for each in rivals})
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        raise ModelAmbiguous(f"{name!r} may be {', '.join(names[:SHOWN])}{more}")
    first = wanted[0]
    if first.model.problem is not None:
        told = f"{first.model.names[0]} cannot be used: {first.model.problem}"
        raise ModelInvalid(told, first.model.remedy)
    return first


def _store(each: Named) -> int:
    """The place of a model's store among those that go first."""
    return FIRST.index(each.model.store) if each.model.store in FIRST else len(FIRST)


def _preference(each: Named) -> tuple[int, int]:
    """By what models of one kind are sorted, the least first."""
    return (0 if each.parts is None else each.parts.preference), -each.model.size
