"""Files and functions stay small, errors are caught with a reason, and tests keep up with the source."""

from __future__ import annotations

import ast
import re
import statistics
from pathlib import Path

import pytest

from tests.hygiene.source import (
    ACCEPTANCE,
    PACKAGE,
    ROOT,
    TESTS,
    functions,
    length,
    lines_of,
    nodes_of,
    parameters,
    python_files,
)

MAX_FILE = 500
MAX_FUNCTION = 60
MAX_FUNCTION_P90 = 25
MAX_PARAMETERS = 6
REASON_WITHIN = 3
# A command's options are its parameters.
NOT_CORE = (PACKAGE / "cli",)


def test_no_file_is_long() -> None:
    sizes = {path: len(lines_of(path)) for path in python_files(PACKAGE, ACCEPTANCE, TESTS)}
    assert len(sizes) > 100
    assert {str(path.relative_to(ROOT)): n for path, n in sizes.items() if n > MAX_FILE} == {}


def test_no_function_is_long() -> None:
    assert [f"{f.place}: {f.lines}" for f in functions(PACKAGE, ACCEPTANCE) if f.lines > MAX_FUNCTION] == []


@pytest.mark.parametrize("folder", [PACKAGE, ACCEPTANCE], ids=lambda folder: folder.name)
def test_nine_functions_in_ten_are_short(folder: Path) -> None:
    sizes = [f.lines for f in functions(folder)]
    assert statistics.quantiles(sizes, n=10)[-1] <= MAX_FUNCTION_P90


def test_no_function_of_the_core_takes_many_parameters() -> None:
    outside = tuple(str(folder.relative_to(ROOT)) for folder in NOT_CORE)
    core = [f for f in functions(PACKAGE, ACCEPTANCE) if not f.place.startswith(outside)]
    many = {f.place: parameters(f.node) for f in core if len(parameters(f.node)) > MAX_PARAMETERS}
    assert many == {}


def test_there_is_at_least_a_line_of_test_for_each_line_of_source() -> None:
    source, tests = (
        sum(len(lines_of(path)) for path in python_files(*folders)) for folders in ((PACKAGE,), (TESTS,))
    )
    assert tests >= source


def handlers(path: Path) -> list[ast.ExceptHandler]:
    return [node for node in nodes_of(path) if isinstance(node, ast.ExceptHandler)]


def names_of(handler: ast.ExceptHandler) -> list[str]:
    caught = handler.type
    kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return [kind.id for kind in kinds if isinstance(kind, ast.Name)]


def test_no_except_is_bare() -> None:
    everywhere = python_files(PACKAGE, ACCEPTANCE, TESTS)
    files = [path for path in everywhere if re.search(r"except\s*:", path.read_text("utf-8"))]
    bare = [(path, h.lineno) for path in files for h in handlers(path) if h.type is None]
    assert bare == []


def test_catching_every_exception_has_its_reason_beside_it() -> None:
    broad = [(p, h.lineno) for p in python_files(PACKAGE) for h in handlers(p) if "Exception" in names_of(h)]
    assert broad
    for path, line in broad:
        near = lines_of(path)[max(0, line - 1 - REASON_WITHIN) : line + REASON_WITHIN]
        assert any("# " in text for text in near), f"{path}:{line}"


def test_catching_what_ends_the_program_passes_it_on() -> None:
    caught = [(p, h) for p in python_files(PACKAGE) for h in handlers(p) if "BaseException" in names_of(h)]
    for path, handler in caught:
        assert isinstance(handler.body[-1], ast.Raise), f"{path}:{handler.lineno}"


def test_a_docstring_does_not_count_as_length() -> None:
    node = ast.parse('def f():\n    """One.\n\n    Two.\n    """\n    return 1\n').body[0]
    assert isinstance(node, ast.FunctionDef)
    assert length(node) == 2
