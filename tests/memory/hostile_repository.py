"""A cloned repository whose rules and files are made to stop a program that reads them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

BACKTRACKING = "*a" * 24 + "*b\n"
NAME = "a" * 60 + ".py"
AUTOMATON = "".join(f"**/*a{'?' * 50}/**/b{n}\n" for n in range(490))


def _fifo(rules: Path) -> None:
    os.mkfifo(rules)


def _two_gigabytes(rules: Path) -> None:
    with rules.open("wb") as file:
        file.truncate(2 << 30)


def _nested(rules: Path) -> None:
    folder = rules.parent
    for depth in range(100):
        (folder / ".gitignore").write_text(AUTOMATON + f"{depth}\n")
        folder = folder / "b"
        folder.mkdir()
    (folder / NAME).write_text("x = 1\n")


def _unreadable(rules: Path) -> None:
    rules.write_text("*.log\n")
    rules.chmod(0)


def exploding(seed: int) -> str:
    """Rules whose automata grow with every name of the letters ``a`` to ``h``."""
    letters = random.Random(seed)
    lines = ("*" + "*".join(letters.choices("abcdefgh", k=5)) + "*z" for _ in range(2600))
    return "\n".join(lines)


def siblings(root: Path, count: int) -> None:
    """Make so many directories beside each other, each with such rules and with names for them."""
    for number in range(count):
        folder = root / f"d{number}"
        (folder / "inner").mkdir(parents=True)
        (folder / "inner" / "x.py").write_text("x = 1\n")
        (folder / ".gitignore").write_text(exploding(number))
        letters = random.Random(number)
        for _ in range(8):
            (folder / "".join(letters.choices("abcdefgh", k=200))).write_text("x\n")


HOSTILE: dict[str, Callable[[Path], object]] = {
    "backtracking": lambda rules: rules.write_text(BACKTRACKING),
    "automaton": lambda rules: rules.write_text(AUTOMATON),
    "broken-bracket": lambda rules: rules.write_text("[z-a]\n"),
    "trailing-backslash": lambda rules: rules.write_text("a\\\n"),
    "fifo": _fifo,
    "device": lambda rules: rules.symlink_to("/dev/zero"),
    "loop": lambda rules: rules.symlink_to(rules),
    "directory": lambda rules: rules.mkdir(),
    "two-gigabytes": _two_gigabytes,
    "million-lines": lambda rules: rules.write_text("".join(f"*{n}?\n" for n in range(1_000_000))),
    "nested": _nested,
    "unreadable": _unreadable,
}


def make(root: Path, kind: str) -> Path:
    """A clone of that kind; returns a file in it that an editor may open."""
    (root / ".git").mkdir(parents=True)
    (root / NAME).write_text("x = 1\n")
    os.mkfifo(root / "pipe.py")
    (root / "round").symlink_to(root)
    with (root / "huge.py").open("wb") as file:
        file.truncate(2 << 30)
    HOSTILE[kind](root / ".gitignore")
    return root.joinpath(*["b"] * 100, NAME) if kind == "nested" else root / NAME
