"""The installed editors, and localspec's plugins in them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from localspec._version import __version__
from localspec.doctor.finding import Finding
from localspec.process import surroundings

CODE = ("code", "code-insiders", "codium", "code-server")
EXTENSIONS = (
    ".vscode/extensions",
    ".vscode-insiders/extensions",
    ".vscode-oss/extensions",
    ".vscode-server/extensions",
    ".local/share/code-server/extensions",
)
"""directories of their installed extensions, in a user's home"""
EXTENSION = "localspec.localspec"
OLDEST_NEOVIM = (0, 7)
HOW = "see plugins/{}/README.md of the repository"
ANSWER_S = 2.0


def editors(user_home: Path) -> Iterator[Finding]:
    """Check VS Code and Neovim, if they are on the PATH; without both, name the language server."""
    found = [*_code(user_home), *_neovim()]
    sentence = "Neither VS Code nor Neovim is on the PATH; other editors can use `localspec lsp`."
    yield from found or [Finding("editors", "ok", sentence)]


def _code(user_home: Path) -> Iterator[Finding]:
    names = [name for name in CODE if shutil.which(name)]
    if not names:
        return
    code = f"VS Code ({', '.join(names)})"
    installed = {
        path.name.removeprefix(f"{EXTENSION}-")
        for place in EXTENSIONS
        for path in user_home.glob(f"{place}/{EXTENSION}-*")
    }
    if not installed:
        how = HOW.format("vscode")
        yield Finding("editors", "ok", f"{code} is installed, localspec's extension is not: {how}.")
    elif __version__ in installed:
        yield Finding("editors", "ok", f"{code} has localspec's extension.")
    else:
        others = ", ".join(sorted(installed))
        sentence = f"{code} has localspec's extension {others}; this is localspec {__version__}."
        step = f"Install the extension of this version: {HOW.format('vscode')}."
        yield Finding("editors", "warning", sentence, step)


def _neovim() -> Iterator[Finding]:
    program = shutil.which("nvim")
    if program is None:
        return
    version = _version_of(program)
    if version is None:
        sentence = "Neovim is installed, but `nvim --version` prints no version"
    elif version < OLDEST_NEOVIM:
        needed = ".".join(map(str, OLDEST_NEOVIM))
        sentence = f"Neovim {_dotted(version)} is installed, but localspec's plugin needs {needed} or newer"
    else:
        sentence = f"Neovim {_dotted(version)} is installed; `:checkhealth localspec` in it checks the plugin"
    yield Finding("editors", "ok", f"{sentence}.")


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _version_of(program: str) -> tuple[int, ...] | None:
    try:
        printed = subprocess.run(
            (program, "--version"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_S,
            check=False,
            **surroundings(),
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.match(r"NVIM v(\d+)\.(\d+)\.(\d+)", printed)
    return None if found is None else tuple(map(int, found.groups()))
