"""Defects of the chat itself: told in a sentence; their traceback is kept in a file."""

from __future__ import annotations

import contextlib
import traceback

from localspec import home
from localspec.errors import LocalspecError


def told(error: Exception) -> LocalspecError:
    """An error that nobody foresaw, for a person; the file holds the last one only."""
    sentence, remedy = f"{type(error).__name__}: {error}", "This is a defect of localspec: please report it."
    with contextlib.suppress(OSError, LocalspecError):
        path = home.state_dir() / "chat.log"
        home.write_private(path, "".join(traceback.format_exception(error)))
        remedy = f"This is a defect of localspec: please report it, with {path}."
    return LocalspecError(sentence, remedy)
