"""Reading files that others wrote: plain files only, up to a limit, and no error but a ModelError."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from localspec.errors import ModelInvalid, ModelNotFound

T = TypeVar("T")

REMEDY = "Give a complete model directory; `-m bundled` always works."
RIGHT = "Give your user the right to read it."
LONGEST_SHOWN = 100
"""characters or bytes of a text from a file that are shown"""


def shown(text: str | bytes) -> str:
    """The beginning of a text from a file, in quotes, for a message."""
    return repr(text) if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]!r}…"


@contextmanager
def opened(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """A plain file and its size in bytes; links are followed.

    Raises :class:`ModelNotFound` for a file that is not there, :class:`ModelInvalid` for one that
    cannot be read, also where that fails while it is open.
    """
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):  # opening a pipe would wait for its writer
            raise ModelInvalid(f"{path} is {'a directory' if stat.S_ISDIR(mode) else 'not a plain file'}")
        with path.open("rb") as file:
            yield file, os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        raise ModelNotFound(f"there is no file {path}") from None
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None


def unreadable(path: Path, error: OSError | ValueError) -> ModelInvalid:
    """The error for a file that cannot be read, with a remedy of its own where only a right is missing."""
    remedy = RIGHT if isinstance(error, PermissionError) else None
    return ModelInvalid(f"{path} cannot be read: {error}", remedy)


def read_bounded(path: Path, limit: int) -> bytes:
    """All of a file of at most ``limit`` bytes; raises as :func:`opened` does."""
    with opened(path) as (file, size):
        if size > limit:
            raise ModelInvalid(f"{path} is longer than {limit} bytes", REMEDY)
        return file.read(size)


def decode_json(data: bytes, kind: type[T], path: Path) -> T:
    """The JSON of ``path`` as a ``kind``; raises :class:`ModelInvalid` where it is not JSON of that form."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ModelInvalid(f"{path} does not contain the expected JSON: {error}", REMEDY) from None
