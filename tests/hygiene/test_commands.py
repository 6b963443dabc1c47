"""The commands that messages and remedies name exist."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import CycloptsError, MissingArgumentError

import localspec
from localspec.cli.app import app

SOURCES = sorted(Path(localspec.__file__).parent.rglob("*.py"))
COMMAND = re.compile(r"`(?:X )?localspec ([^`…]+)`")


def texts(path: Path) -> Iterator[str]:
    """The texts of a module that are no docstrings; ``X`` stands for what is put in."""
    tree = ast.parse(path.read_text())
    docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings | parts
        ):
            yield node.value


def commands() -> list[str]:
    return sorted({found for path in SOURCES for text in texts(path) for found in COMMAND.findall(text)})


def parses(command: str) -> bool:
    try:
        app.parse_args(shlex.split(command), print_error=False, exit_on_error=False)
    except MissingArgumentError:
        return True  # a sentence names the command alone
    except CycloptsError:
        return False
    return True


@pytest.mark.parametrize("command", commands())
def test_a_named_command_exists(command: str) -> None:
    assert parses(command)
