"""The editor that a person wants."""

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


def edit(path: Path) -> None:
    """Let a person edit a file; raises :class:`LocalspecError` if no editor is there, or it fails."""
    command = _command()
    # Ctrl-C in there is the editor's. Ignored altogether it would be for the editor, too.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        code = subprocess.run([*command, str(path)], check=False).returncode
    except OSError as error:
        raise LocalspecError(f"{command[0]} cannot be run: {error.strerror}", REMEDY) from None
    finally:
        signal.signal(signal.SIGINT, before)
    if code:
        raise LocalspecError(f"{command[0]} failed with exit code {code}", REMEDY)


def _command() -> list[str]:
    for variable in ("VISUAL", "EDITOR"):
        if said := os.environ.get(variable, "").strip():
            try:
                return shlex.split(said)
            except ValueError as error:
                raise LocalspecError(f"${variable} is no command: {error}", REMEDY) from None
    found = next((path for name in USUAL if (path := shutil.which(name))), None)
    if found is None:
        raise LocalspecError("there is no editor", REMEDY)
    return [found]
