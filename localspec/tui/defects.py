"""Internal errors of the chat: shown as a sentence, with their traceback in a file."""

from __future__ import annotations

import contextlib
import traceback

from localspec import home
from localspec.errors import LocalspecError


def report(error: Exception) -> LocalspecError:
    """Write an unexpected error's traceback to a file, which holds the last one only; return what to show."""
    sentence, remedy = f"{type(error).__name__}: {error}", "This is a defect of localspec: please report it."
    with contextlib.suppress(OSError, LocalspecError):
        path = home.state_dir() / "chat.log"
        home.write_private(path, "".join(traceback.format_exception(error)))
        remedy = f"This is a defect of localspec: please report it, with {path}."
    return LocalspecError(sentence, remedy)
