"""Private names of the toolkit that the chat uses: the next version may lack them."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Iterator
from functools import cache

import pytest

from localspec import tui

REPLACED = {("ChatApp", "_handle_exception"), ("Composer", "_on_key"), ("Composer", "_on_paste")}
"""private methods that are others here; the toolkit calls them"""


def classes() -> Iterator[type]:
    """The classes here that are made of the toolkit's."""
    for found in pkgutil.walk_packages(tui.__path__, f"{tui.__name__}."):
        for each in vars(importlib.import_module(found.name)).values():
            if inspect.isclass(each) and each.__module__ == found.name and any(bases(each)):
                yield each


def bases(each: type) -> list[type]:
    return [base for base in each.__mro__ if base.__module__.startswith("textual.")]


@cache
def private(each: type) -> set[str]:
    """The names with an underscore that a class gives to its methods and to what it keeps."""
    nodes = [*ast.walk(ast.parse(textwrap.dedent(inspect.getsource(each))))]
    found = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    kept = [node for node in nodes if isinstance(getattr(node, "ctx", None), ast.Store)]
    found |= {str(getattr(node, "attr", None) or getattr(node, "id", None)) for node in kept}
    return {name for name in found if name.startswith("_") and name[1:2] not in ("", "_")}


@pytest.mark.slow
def test_private_names_are_replaced_on_purpose_only() -> None:
    """Also what the toolkit begins to call as something here is called would be found."""
    found = set()
    for each in classes():
        inherited = set().union(*map(private, bases(each)))
        found |= {(each.__name__, name) for name in private(each) & inherited}
    assert found == REPLACED
