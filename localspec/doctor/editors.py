"""The editors that are here, and whether localspec is in them."""

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
"""where those keep what was installed, in a user's home"""
EXTENSION = "localspec.localspec"
OLDEST_NEOVIM = (0, 7)
HOW = "plugins/{}/README.md of the repository says how"
ANSWER_S = 2.0


def editors(user_home: Path) -> Iterator[Finding]:
    """Of VS Code and Neovim, what is on the PATH; without either, what other editors can do."""
    found = [*_code(user_home), *_neovim()]
    sentence = "Neither VS Code nor Neovim is on the PATH; any editor may use `localspec lsp`."
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
        yield Finding("editors", "ok", f"{code} is here, without localspec's extension: {how} it gets there.")
    elif __version__ in installed:
        yield Finding("editors", "ok", f"{code} has localspec's extension.")
    else:
        others = ", ".join(sorted(installed))
        told = f"{code} has localspec's extension {others}; this is localspec {__version__}."
        yield Finding("editors", "warning", told, f"Install its own: {HOW.format('vscode')}.")


def _neovim() -> Iterator[Finding]:
    program = shutil.which("nvim")
    if program is None:
        return
    version = _version_of(program)
    if version is None:
        sentence = "Neovim is here, but does not tell its version"
    elif version < OLDEST_NEOVIM:
        needed = ".".join(map(str, OLDEST_NEOVIM))
        sentence = (
            f"Neovim {_said(version)} is here, and too old for localspec's plugin, which needs {needed}"
        )
    else:
        sentence = f"Neovim {_said(version)} is here; its `:checkhealth localspec` tells of the plugin"
    yield Finding("editors", "ok", f"{sentence}.")


def _said(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


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
            **surroundings(),
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.match(r"NVIM v(\d+)\.(\d+)\.(\d+)", said)
    return None if found is None else tuple(map(int, found.groups()))
