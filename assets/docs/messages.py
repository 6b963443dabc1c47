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
    """A message in the source, with its error's code and remedy."""

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
    return f"## {code}\n\n{table(('message', 'what to do'), rows)}"


def messages() -> Iterator[Message]:
    """Yield the messages that can be read from the source."""
    shared = _assigned(ast.parse((SOURCE / "errors.py").read_text("utf-8")).body)
    trees = [ast.parse(path.read_text("utf-8")) for path in sorted(SOURCE.rglob("*.py"))]
    codes = _codes(trees, shared)
    for tree in trees:
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
                        yield from _of_call(call, codes[call.func.id], texts)


def _codes(trees: list[ast.Module], shared: Texts) -> dict[str, tuple[str, str]]:
    """Return code and usual remedy of every error class, those outside of :mod:`localspec.errors` too."""
    codes = {kind.__name__: (kind.code, kind.default_remedy) for kind in kinds()}
    for tree in trees:
        for node in tree.body:
            if not isinstance(node, ast.ClassDef) or node.name in codes:
                continue
            bases = [base.id for base in node.bases if isinstance(base, ast.Name) and base.id in codes]
            if bases:
                own, texts = _assigned(node.body), shared | _assigned(tree.body)
                code, remedy = codes[bases[0]]
                code = _text(own["code"], texts) if "code" in own else code
                remedy = _text(own["default_remedy"], texts) if "default_remedy" in own else remedy
                codes[node.name] = code, remedy
    return codes


def _assigned(nodes: list[ast.stmt] | list[ast.AST]) -> Texts:
    """Return what single names are assigned to; a name that is assigned twice is left out."""
    found: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, []).append(node.value)
    return {name: values[0] for name, values in found.items() if len(values) == 1}


def _of_call(call: ast.Call, kind: tuple[str, str], texts: Texts) -> Iterator[Message]:
    code, usual = kind
    named = [keyword.value for keyword in call.keywords if keyword.arg == "remedy"]
    given = [_text(argument, texts) for argument in [*call.args, *named][:2]]
    remedy = given[1] if len(given) > 1 else usual
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
