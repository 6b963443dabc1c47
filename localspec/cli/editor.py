"""The user's editor, from $VISUAL or $EDITOR."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

from localspec.errors import LocalspecError

USUAL = ("editor", "nano", "vim", "vi", "notepad")
REMEDY = "Set $EDITOR to the command of your editor, such as EDITOR=nano."
VISUAL_REMEDY = "Set $VISUAL (it comes before $EDITOR) to your editor's command, or unset it."


def edit(path: Path) -> None:
    """Open a file in the editor; raises :class:`LocalspecError` if there is no editor, or it fails."""
    command, remedy = _command()
    # Ctrl-C is for the editor. SIG_IGN would be inherited by it.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        code = subprocess.run([*command, str(path)], check=False).returncode
    except OSError as error:
        raise LocalspecError(f"{command[0]} cannot be run: {error.strerror}", remedy) from None
    finally:
        signal.signal(signal.SIGINT, before)
    if code:
        raise LocalspecError(f"{command[0]} failed with exit code {code}", remedy)


def _command() -> tuple[list[str], str]:
    """Return the editor's command, and the remedy if it fails: to change the variable that it is from."""
    for variable, remedy in (("VISUAL", VISUAL_REMEDY), ("EDITOR", REMEDY)):
        if command := os.environ.get(variable, "").strip():
            try:
                return shlex.split(command), remedy
            except ValueError as error:
                raise LocalspecError(f"${variable} is not a command: {error}", remedy) from None
    found = next((path for name in USUAL if (path := shutil.which(name))), None)
    if found is None:
        raise LocalspecError(f"no editor was found: none of {', '.join(USUAL)} is on the PATH", REMEDY)
    return [found], REMEDY
