"""The repository's own Python files, for the tests that measure them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "localspec"
TESTS = ROOT / "tests"
ASSETS = ROOT / "assets"
PLUGINS = ROOT / "plugins"

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def python_files(*folders: Path) -> list[Path]:
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def lines_of(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines()


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text("utf-8"), str(path))))


class Function(NamedTuple):
    """A function, where it stands, and its lines without the docstring."""

    place: str
    node: FunctionNode
    lines: int


def functions(*folders: Path) -> list[Function]:
    return [
        Function(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", node, length(node))
        for path in python_files(*folders)
        for node in nodes_of(path)
        if isinstance(node, FunctionNode)
    ]


def length(node: FunctionNode) -> int:
    first = node.body[0]
    is_documented = ast.get_docstring(node) is not None
    docstring = (first.end_lineno or 0) - first.lineno + 1 if is_documented else 0
    return (node.end_lineno or 0) - node.lineno + 1 - docstring


def parameters(node: FunctionNode) -> list[str]:
    named = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return [each.arg for each in named if each.arg not in ("self", "cls")]
