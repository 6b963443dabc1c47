"""The Neovims that are here."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

EDITORS = Path("/tmp/ed")


@dataclass(frozen=True)
class Neovim:
    """How one is started; ``problem``: why it cannot be."""

    name: str
    command: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    problem: str = ""


def neovims() -> list[Neovim]:
    """The one on the PATH, and those that were unpacked."""
    system = shutil.which("nvim")
    here = Neovim("nvim", (system,)) if system else Neovim("nvim", problem="nvim is not on the PATH")
    trees = {"0.10.4": "nv-trixie", "0.12.4": "nv-forky"}
    return [here, *(_unpacked(name, EDITORS / folder / "tree") for name, folder in trees.items())]


def _unpacked(name: str, tree: Path) -> Neovim:
    """A Debian package's, which brings its own libraries."""
    libraries = tree / "usr" / "lib" / f"{os.uname().machine}-linux-gnu"
    loader = libraries / "ld-linux-x86-64.so.2"
    program = tree / "usr" / "bin" / "nvim"
    if not program.exists():
        return Neovim(name, problem=f"Neovim {name} is not installed")
    command = (str(loader), "--library-path", str(libraries), str(program))
    return Neovim(name, command, {"VIMRUNTIME": str(tree / "usr" / "share" / "nvim" / "runtime")})


def each() -> list[object]:
    """Every Neovim as a parameter of a test, which is skipped where that one is not here."""
    return [
        pytest.param(one, id=one.name, marks=pytest.mark.skipif(bool(one.problem), reason=one.problem))
        for one in neovims()
    ]
