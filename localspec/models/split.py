"""Names of the files of a split GGUF model: ``model-00001-of-00003.gguf``, as llama.cpp writes them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


class Split(NamedTuple):
    """One part of a split model; ``stem`` is the beginning of all parts' names."""

    path: Path
    stem: str
    number: int
    total: int

    def part(self, number: int) -> Path:
        """The path of another part: beside this one."""
        return self.path.with_name(f"{self.stem}-{number:05}-of-{self.total:05}.gguf")


def split_of(path: Path) -> Split | None:
    """The part of a split model that this file is by its name; None for a file that is a model by itself."""
    found = _NAME.fullmatch(path.name)
    if found is None:
        return None
    split = Split(path, found["stem"], int(found["number"]), int(found["count"]))
    return split if 1 <= split.number <= split.total else None


def first_part(path: Path) -> Path:
    """The file that a model is loaded by: of a split one the first part, there or not."""
    split = split_of(path)
    return path if split is None else split.part(1)
