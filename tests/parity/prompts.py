"""Prompts of every kind, made from the standard library's own sources: the same on every run."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import string
import textwrap
from collections.abc import Callable, Iterator
from types import ModuleType

from localspec.protocol.requests import ChatPrompt, FimPrompt, Message, Prompt, TextPrompt

MODULES: tuple[ModuleType, ...] = (textwrap, shutil, json, string, inspect)
SHORT, LONG = 250, 700


def functions() -> Iterator[tuple[str, str]]:
    """(qualified name, source) of functions of moderate length."""
    for module in MODULES:
        for name, function in sorted(vars(module).items()):
            if inspect.isfunction(function) and function.__module__ == module.__name__:
                source = textwrap.dedent(inspect.getsource(function))
                if SHORT < len(source) < LONG:
                    yield f"{module.__name__}.{name}", source


def question(name: str, _source: str) -> Prompt:
    return ChatPrompt((Message("user", f"What does `{name}` do?"),))


def rename(_name: str, source: str) -> Prompt:
    word = max(re.findall(r"\b[a-z_]{3,}\b", source), key=source.count)
    text = f"Rename `{word}` to `value` in this function:\n```python\n{source}```"
    return ChatPrompt((Message("user", text),))


def half(_name: str, source: str) -> Prompt:
    return TextPrompt(source[: len(source) // 2])


def gap(_name: str, source: str) -> Prompt:
    lines = source.splitlines(keepends=True)
    cut = len(lines) // 2
    return FimPrompt("".join(lines[:cut]), "".join(lines[cut + 1 :]))


KINDS: tuple[Callable[[str, str], Prompt], ...] = (question, rename, half, gap)


def prompts(n: int) -> list[Prompt]:
    """``n`` prompts, the kinds in turns."""
    made: list[Prompt] = []
    for name, source in functions():
        made += [kind(name, source) for kind in KINDS]
    return made[:n]
