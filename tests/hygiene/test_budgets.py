"""Ceilings of size, which only go down, and errors that are caught with a reason."""

from __future__ import annotations

import ast
import re
import statistics
from pathlib import Path

from tests.hygiene.source import (
    ASSETS,
    PACKAGE,
    PLUGINS,
    ROOT,
    TESTS,
    functions,
    length,
    lines_of,
    nodes_of,
    parameters,
    python_files,
)

CEILINGS = {
    "assets": 2919,
    "localspec/.": 1764,
    "localspec/agent": 702,
    "localspec/backends": 3584,
    "localspec/bench": 283,
    "localspec/cli": 4165,
    "localspec/client": 965,
    "localspec/completion": 565,
    "localspec/constraints": 784,
    "localspec/daemon": 4710,
    "localspec/doctor": 644,
    "localspec/engine": 3860,
    "localspec/http": 4198,
    "localspec/hub": 1051,
    "localspec/lsp": 1302,
    "localspec/memory": 1692,
    "localspec/models": 3924,
    "localspec/protocol": 1911,
    "localspec/ranks": 1232,
    "localspec/service": 322,
    "localspec/speculation": 2337,
    "localspec/tools": 1003,
    "localspec/tui": 5060,
    "localspec/worker": 701,
    "plugins/llm": 150,
    "plugins/lsp": 0,
    "plugins/nvim": 1399,
    "plugins/vscode": 2644,
    "tests": 49430,
}
"""lines of code by package, in Python unless it is a plugin; ``.``: the modules beside the packages"""
SUFFIXES = {"vscode": ".ts", "nvim": ".lua"}
"""languages of plugins that are not in Python"""
MAX_FILE = 800
MAX_FUNCTION = 60
MAX_FUNCTION_P90 = 25
MAX_PARAMETERS = 6
REASON_WITHIN = 3
# A command's options are its parameters.
NOT_CORE = (PACKAGE / "cli",)


def test_every_package_stays_below_its_ceiling() -> None:
    sizes = dict.fromkeys(CEILINGS, 0) | {name: lines(name) for name in packages()}
    above = {name: (n, CEILINGS.get(name, 0)) for name, n in sizes.items() if n > CEILINGS.get(name, 0)}
    assert above == {}, "take lines from elsewhere in the package; CONTRIBUTING says when a ceiling rises"


def packages() -> list[str]:
    """The packages of localspec, the plugins, and assets and tests as a whole."""
    inside = [path for place in (PACKAGE, PLUGINS) for path in place.iterdir() if path.is_dir()]
    named = [str(path.relative_to(ROOT)) for path in inside if not path.name.startswith("_")]
    return [*named, "localspec/.", "assets", "tests"]


def lines(name: str) -> int:
    """Lines of the code of a package, generated and installed files excluded."""
    folder, suffix = ROOT / name, SUFFIXES.get(Path(name).name, ".py")
    files = folder.glob("*.py") if name.endswith(".") else folder.rglob(f"*{suffix}")
    return sum(len(lines_of(path)) for path in files if "node_modules" not in path.parts)


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


def test_a_docstring_does_not_count_as_length() -> None:
    node = ast.parse('def f():\n    """One.\n\n    Two.\n    """\n    return 1\n').body[0]
    assert isinstance(node, ast.FunctionDef)
    assert length(node) == 2
