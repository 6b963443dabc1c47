"""Messages of all errors, from the calls that make them: ``…`` stands for a value."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from assets.docs.failures import kinds
from assets.docs.parts import table

SOURCE = Path(__file__).parent.parent.parent / "localspec"
VALUE = "…"
Texts = dict[str, ast.expr]
"""expressions by the name that they are assigned to"""


class Message(NamedTuple):
    """A message in the source, with its error's code; ``remedy`` is empty where the usual one holds."""

    code: str
    text: str
    remedy: str


def body() -> str:
    """Return a table for each code: message and remedy."""
    found = sorted(set(messages()))
    codes = sorted({each.code for each in found})
    return "\n".join(_section(code, [each for each in found if each.code == code]) for code in codes)


def _section(code: str, found: list[Message]) -> str:
    rows = ((each.text, each.remedy) for each in found)
    return f"## {code}\n\n{table(('message', 'what to do, where not as usual'), rows)}"


def messages() -> Iterator[Message]:
    """Yield the messages that can be read from the source."""
    codes = {kind.__name__: (kind.code, kind.default_remedy) for kind in kinds()}
    shared = _assigned(ast.parse((SOURCE / "errors.py").read_text("utf-8")).body)
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        constants = shared | _assigned(tree.body)
        for scope in ast.walk(tree):
            if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
                texts = constants | _assigned(list(ast.walk(scope)))
                for call in ast.walk(scope):
                    if (
                        isinstance(call, ast.Call)
                        and isinstance(call.func, ast.Name)
                        and call.func.id in codes
                    ):
                        yield from _told(call, codes[call.func.id], texts)


def _assigned(nodes: list[ast.stmt] | list[ast.AST]) -> Texts:
    """Return what single names are assigned to; a name that is assigned twice is left out."""
    found: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, []).append(node.value)
    return {name: values[0] for name, values in found.items() if len(values) == 1}


def _told(call: ast.Call, kind: tuple[str, str], texts: Texts) -> Iterator[Message]:
    code, usual = kind
    named = [keyword.value for keyword in call.keywords if keyword.arg == "remedy"]
    given = [_text(argument, texts) for argument in [*call.args, *named][:2]]
    remedy = given[1] if len(given) > 1 and given[1] != usual else ""
    if given and given[0].strip(f"{VALUE}:,. "):
        yield Message(code, *(re.sub(f"{VALUE}+", VALUE, text) for text in (given[0], remedy)))


def _text(node: ast.expr, texts: Texts) -> str:
    """Return the text of an expression, with its values as ``…``."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part, texts) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left, texts) + _text(node.right, texts)
    inner = node.value if isinstance(node, ast.FormattedValue) else node
    if isinstance(inner, ast.Name) and inner.id in texts:
        return _text(texts[inner.id], {name: text for name, text in texts.items() if name != inner.id})
    return VALUE
