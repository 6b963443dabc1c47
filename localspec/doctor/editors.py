"""The editors that are here. Plugins for them come with a later version: there is nothing to mend yet."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from localspec._version import __version__
from localspec.doctor.finding import Finding

CODE = ("code", "code-insiders", "codium", "code-server")
EXTENSIONS = (
    ".vscode/extensions",
    ".vscode-insiders/extensions",
    ".vscode-oss/extensions",
    ".vscode-server/extensions",
    ".local/share/code-server/extensions",
)
"""where those keep what was installed, in a user's home"""
OLDEST_NEOVIM = (0, 7)
ANSWER_S = 2.0


def editors(user_home: Path) -> Finding:
    """Of VS Code and Neovim, what is on the PATH; and what calls itself localspec's among the extensions."""
    here = [*_code(), *_neovim()]
    told = (
        f"{' and '.join(here)} {'is' if len(here) == 1 else 'are'} here"
        if here
        else "Neither VS Code nor Neovim is on the PATH"
    )
    told += f"; localspec {__version__} has no plugins for editors yet"
    strange = [str(path) for place in EXTENSIONS for path in sorted(user_home.glob(f"{place}/*localspec*"))]
    if strange:
        told += f", and {' and '.join(strange)} is none of its own"
    return Finding("editors", "ok", f"{told}.")


def _code() -> Iterator[str]:
    names = [name for name in CODE if shutil.which(name)]
    if names:
        yield f"VS Code ({', '.join(names)})"


def _neovim() -> Iterator[str]:
    program = shutil.which("nvim")
    if program is None:
        return
    version = _version_of(program)
    if version is None:
        yield "Neovim (it does not tell its version)"
    else:
        old = version < OLDEST_NEOVIM
        needed = f" (older than {'.'.join(map(str, OLDEST_NEOVIM))})" if old else ""
        yield f"Neovim {'.'.join(map(str, version))}{needed}"


def _version_of(program: str) -> tuple[int, ...] | None:
    try:
        said = subprocess.run(
            (program, "--version"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_S,
            check=False,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.match(r"NVIM v(\d+)\.(\d+)\.(\d+)", said)
    return None if found is None else tuple(map(int, found.groups()))
