"""Plain technical English: no persons, and docstrings that say what is returned or done."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.hygiene.source import PACKAGE, ROOT, nodes_of, python_files

WORDS = re.compile(r"\b(nobody|somebody|whoever|told|theirs|in vain|strangers?|doors?)\b", re.IGNORECASE)
RIDDLE = re.compile(r"(What|Who|Whose|Whom|Where|Which|Whether|How)\b")
WRITTEN = {".py", ".md", ".ts", ".lua", ".toml", ".txt"}
PLACES = (PACKAGE, ROOT / "docs", ROOT / "plugins", ROOT / "README.md", ROOT / "CONTRIBUTING.md")
SKIPPED = {"node_modules", "out", "__pycache__", "known"}
"""directories of others' texts"""


def texts() -> list[Path]:
    """Files of code and documentation that people read."""
    found = [path for place in PLACES for path in (place.rglob("*") if place.is_dir() else (place,))]
    return sorted(p for p in found if p.suffix in WRITTEN and not SKIPPED & set(p.relative_to(ROOT).parts))


def test_no_text_speaks_of_persons() -> None:
    files = texts()
    assert len(files) > 250
    lines = (
        (path, n, line) for path in files for n, line in enumerate(path.read_text("utf-8").splitlines(), 1)
    )
    assert [f"{p.relative_to(ROOT)}:{n}: {line.strip()}" for p, n, line in lines if WORDS.search(line)] == []


def test_no_docstring_is_a_riddle() -> None:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    documented = [
        (path, ast.get_docstring(node) or "")
        for path in python_files(PACKAGE)
        for node in nodes_of(path)
        if isinstance(node, kinds)
    ]
    assert len(documented) > 2000
    assert [f"{p.relative_to(ROOT)}: {text}" for p, text in documented if RIDDLE.match(text)] == []
