"""Every process is started in the surroundings of ``localspec.process``, a Python of ours by its command."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.hygiene.source import PACKAGE, nodes_of, python_files

STARTS = {
    "subprocess": re.compile("Popen|run|call|check_call|check_output|getoutput|getstatusoutput"),
    "asyncio": re.compile("create_subprocess_(exec|shell)"),
    "loop": re.compile("subprocess_(exec|shell)"),
    "os": re.compile("system|popen|fork|forkpty|startfile|posix_spawnp?|(exec|spawn)[lv]p?e?"),
    "pty": re.compile("fork|spawn"),
    "multiprocessing": re.compile("Process|Pool|Manager|get_context"),
    "concurrent.futures": re.compile("ProcessPoolExecutor"),
    "futures": re.compile("ProcessPoolExecutor"),
}
"""of each module, what starts a process"""
OWN = PACKAGE / "process.py"
USERS = {PACKAGE / name for name in ("agent/server.py", "cli/config.py", "tui/export.py")}
"""programs that the person chose, in the person's directory"""
NAMING = {PACKAGE / "doctor" / "backends.py"}
"""modules that name the running Python in a message"""


def starts(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    pattern = STARTS.get(ast.unparse(node.func.value))
    return pattern is not None and pattern.fullmatch(node.func.attr) is not None


def is_surrounded(call: ast.Call, source: str) -> bool:
    last = [ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg is None]
    names = re.findall(r"(\w+) = .*\bsurroundings\(\)$", source, re.MULTILINE)
    return any(value in names or re.match(r"(process\.)?surroundings\(", value) for value in last)


def outside(path: Path, source: str) -> list[str]:
    """The calls of a source that start a process in other surroundings."""
    found = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call) and starts(n)]
    return [f"{path.name}:{call.lineno}" for call in found if not is_surrounded(call, source)]


@pytest.mark.slow
def test_no_process_is_started_in_other_surroundings() -> None:
    files = [path for path in python_files(PACKAGE) if path not in {OWN, *USERS}]
    assert [place for path in files for place in outside(path, path.read_text("utf-8"))] == []


@pytest.mark.slow
def test_no_module_has_names_of_its_own_for_what_starts_processes() -> None:
    modules = {**STARTS, "asyncio.subprocess": STARTS["asyncio"]}
    imports = [(p, n) for p in python_files(PACKAGE) for n in nodes_of(p) if isinstance(n, ast.ImportFrom)]
    named = [(p, n.module, each.name) for p, n in imports for each in n.names if n.module in modules]
    assert [(p.name, name) for p, module, name in named if modules[str(module)].fullmatch(name)] == []


def test_this_python_is_run_by_one_command() -> None:
    named = {p for p in python_files(PACKAGE) if "sys.executable" in p.read_text("utf-8")}
    assert named - NAMING == {OWN}
