"""One model on this disk, as a value made once by :mod:`localspec.models.library`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from localspec.models.description import (
    MODULES,
    Format,
    Header,
    describe,
    format_of,
    text_of,
    weight_files,
    weights_size,
)
from localspec.models.directory import CONFIG, read_directory
from localspec.models.gguf import read_header, split_of
from localspec.models.names import Parts
from localspec.models.tokenizer_json import SETTINGS, TEMPLATE, TEMPLATE_IN_JSON, TOKENIZER
from localspec.protocol.frames import ModelFile, Signature
from localspec.protocol.messages import ModelDescription


@dataclass(frozen=True)
class Model:
    """A model's file or directory; equal to another one at the same path.

    ``path`` is absolute and unresolved: links in a store have names, their targets have digests. ``known`` is
    the description of a model that is in a store, ``parts`` its name taken apart (None: bundled, or not
    usable). ``stamp`` is the state of its files when ``known`` was read. Place, header, description
    and signature are read once, at their first use.
    """

    path: Path
    format: Format = field(compare=False)
    known: ModelDescription | None = field(default=None, compare=False, repr=False)
    parts: Parts | None = field(default=None, compare=False, repr=False)
    stamp: Signature | None = field(default=None, compare=False, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """All names that mean this model, the one to type first."""
        return (self.known.names if self.known is not None else ()) or (self.own_name,)

    @property
    def name(self) -> str:
        """The name to show and to type: that of the list, or else that of the file."""
        return self.names[0]

    @cached_property
    def own_name(self) -> str:
        """The name in its store, or else of the file or directory."""
        if self.known is not None:
            return self.known.id
        split = split_of(self.path)
        return split.stem if split else self.path.name if self.format == "mlx" else self.path.stem

    @cached_property
    def place(self) -> str:
        """The resolved path as text, alike for all ways to name it."""
        return place_of(self.path)

    @cached_property
    def places(self) -> frozenset[str]:
        """The places in all stores that have it."""
        also = () if self.known is None else self.known.also
        return frozenset((self.place, *(place_of(Path(path)) for path in also)))

    @cached_property
    def signature(self) -> Signature:
        """The state of its files when it was found."""
        return self.stamp if self.stamp is not None else signature_of(self.path)

    @cached_property
    def header(self) -> Header:
        """The header without long arrays, read and checked; raises :class:`ModelError`."""
        _ = self.signature  # before the header: a change in between shows
        return read_directory(self.path) if self.format == "mlx" else read_header(self.path, texts=False)

    @cached_property
    def description(self) -> ModelDescription:
        """The description from the headers; a problem is in it, never raised."""
        return self.known or describe(self.own_name, self.path, self.format, lambda: self.header)

    @property
    def problem(self) -> str | None:
        """The reason why it cannot be used; None if it can."""
        return self.description.problem

    @cached_property
    def weight_bytes(self) -> int:
        """The bytes of its weight files."""
        return weights_size(self.path)

    @property
    def is_current(self) -> bool:
        """True if its files are as they were when it was found."""
        return self.signature == signature_of(self.path)

    def as_listed(self, listed: Model) -> Model:
        """The model with the description and the names that the list has for it, or for a copy of it."""
        stamp = listed.stamp if self.place == listed.place else None
        return replace(self, known=listed.known, parts=listed.parts, stamp=stamp)

    def as_frame(self) -> ModelFile:
        """The frame that sends the model to another process."""
        return ModelFile(os.fsencode(self.path), self.signature, self.description)


def model_at(path: Path) -> Model:
    """The model at a path, which must be a model's file or directory."""
    return Model(path, format_of(path))


def model_from(frame: ModelFile) -> Model:
    """The model that another process found, in its state at that time; no file is read."""
    known = frame.description
    return Model(Path(os.fsdecode(frame.path)), known.format, known=known, stamp=frame.signature)


def place_of(path: Path) -> str:
    """The resolved path as text that JSON can hold, alike for all ways to name a file.

    A part of a split model keeps its name: the others are beside it.
    """
    # realpath, as Path.resolve() fails where links lead in a circle.
    if split_of(path) is None:
        return text_of(os.path.realpath(path))
    return text_of(os.path.join(os.path.realpath(path.parent), path.name))


def signature_of(path: Path) -> Signature:
    """Size, times of change (ns) and inode of each of a model's files; empty for one that is not there."""
    files: Iterable[Path] = sorted(weight_files(path))
    if os.path.isdir(path):
        described = (CONFIG, MODULES, TOKENIZER, SETTINGS, TEMPLATE, TEMPLATE_IN_JSON)
        files = (*files, *(path / name for name in described))
    return tuple(stamp for file in files if (stamp := _stamp(file)) is not None)


def _stamp(path: Path) -> tuple[int, int, int, int] | None:
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino
