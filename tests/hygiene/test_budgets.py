"""Ceilings of size, which only go down, and errors that are caught with a reason."""

from __future__ import annotations

import ast
import re
import statistics
from pathlib import Path

import pytest

from tests.hygiene.ceilings import CEILINGS, RAISED, ROOMS, TOTALS
from tests.hygiene.measures import count_code, count_package, granted, in_area, packages
from tests.hygiene.source import (
    ASSETS,
    PACKAGE,
    ROOT,
    TESTS,
    functions,
    lines_of,
    nodes_of,
    parameters,
    python_files,
)

MAX_FILE = 800
MAX_FUNCTION = 60
MAX_FUNCTION_P90 = 25
MAX_PARAMETERS = 6
REASON_WITHIN = 3
# A command's options are its parameters.
NOT_CORE = (PACKAGE / "cli",)


def test_every_package_stays_below_its_ceiling() -> None:
    sizes = dict.fromkeys(CEILINGS, 0) | {name: count_package(name) for name in packages()}
    above = {name: (n, CEILINGS.get(name, 0)) for name, n in sizes.items() if n > CEILINGS.get(name, 0)}
    assert above == {}, "take lines from elsewhere; CONTRIBUTING says when a ceiling rises"


@pytest.mark.parametrize("area", TOTALS)
def test_ceilings_rise_only_by_what_others_or_rooms_give(area: str) -> None:
    together = sum(ceiling for name, ceiling in CEILINGS.items() if in_area(name, area))
    assert 0 < together <= TOTALS[area] + granted(area)


def test_no_room_gives_more_than_it_has() -> None:
    given = [each for raises in RAISED.values() for each in raises]
    assert {source for _, source, _ in given} <= {*ROOMS, *CEILINGS}
    for room, size in ROOMS.items():
        assert sum(lines for lines, source, _ in given if source == room) <= size, room


@pytest.mark.parametrize(
    ("suffix", "text", "code"),
    [
        (".py", '"""A.\n\nB."""\n\nimport os\nfrom a import (\n    b,\n)\n\n# C\nX = 1  # D\n"""E"""\n', 1),
        (".py", 'def f():\n    """A."""\n    import os\n    return """B\n\n# C"""\n', 3),
        (".ts", "// A\n/* B\n * C */\n\nconst a = 1; // D\nconst b = `/*`;\n", 2),
        (".lua", "--- A\n--[[ B\n]]\nlocal a = 1 -- C\n\n", 1),
    ],
)
def test_only_code_counts(suffix: str, text: str, code: int) -> None:
    assert count_code(text, suffix) == code


def test_no_file_is_long() -> None:
    sizes = {path: len(lines_of(path)) for path in python_files(PACKAGE, ASSETS, TESTS)}
    assert len(sizes) > 100
    assert {str(path.relative_to(ROOT)): n for path, n in sizes.items() if n > MAX_FILE} == {}


def test_no_function_is_long() -> None:
    assert [f"{f.place}: {f.lines}" for f in functions(PACKAGE, ASSETS) if f.lines > MAX_FUNCTION] == []


def test_nine_functions_in_ten_are_short() -> None:
    sizes = [f.lines for f in functions(PACKAGE)]
    assert statistics.quantiles(sizes, n=10)[-1] <= MAX_FUNCTION_P90


def test_no_function_of_the_core_takes_many_parameters() -> None:
    outside = tuple(str(folder.relative_to(ROOT)) for folder in NOT_CORE)
    core = [f for f in functions(PACKAGE) if not f.place.startswith(outside)]
    many = {f.place: parameters(f.node) for f in core if len(parameters(f.node)) > MAX_PARAMETERS}
    assert many == {}


def handlers(path: Path) -> list[ast.ExceptHandler]:
    return [node for node in nodes_of(path) if isinstance(node, ast.ExceptHandler)]


def names_of(handler: ast.ExceptHandler) -> list[str]:
    caught = handler.type
    kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return [kind.id for kind in kinds if isinstance(kind, ast.Name)]


def test_no_except_is_bare() -> None:
    everywhere = python_files(PACKAGE, ASSETS, TESTS)
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
