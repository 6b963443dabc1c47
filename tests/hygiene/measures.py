"""Sizes in lines of code, and faults. ``python -m tests.hygiene.measures`` prints all with ceilings."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

from tests.hygiene.ceilings import CEILINGS, FAULTS, RAISED, ROOMS, TOTALS
from tests.hygiene.faults import find_faults
from tests.hygiene.source import PACKAGE, PLUGINS, ROOT

SUFFIXES = {"vscode": ".ts", "nvim": ".lua"}
"""languages of plugins that are not in Python"""
COMMENT = re.compile(r"^\s*(/\*.*?\*/|--\[\[.*?\]\]|//[^\n]*|--[^\n]*)", re.MULTILINE | re.DOTALL)
"""a comment of TypeScript or Lua that begins its line"""


def packages() -> list[str]:
    """The packages of localspec, the plugins, and assets and tests as a whole."""
    inside = [path for place in (PACKAGE, PLUGINS) for path in place.iterdir() if path.is_dir()]
    named = [str(path.relative_to(ROOT)) for path in inside if not path.name.startswith("_")]
    return sorted([*named, "localspec/.", "assets", "tests"])


def package_files(name: str) -> list[Path]:
    """The code of a package, installed files excluded."""
    folder, suffix = ROOT / name, SUFFIXES.get(Path(name).name, ".py")
    files = folder.glob("*.py") if name.endswith(".") else folder.rglob(f"*{suffix}")
    return [path for path in files if "node_modules" not in path.parts]


def count_package(name: str) -> int:
    return sum(count_code(path.read_text("utf-8"), path.suffix) for path in package_files(name))


def count_code(text: str, suffix: str) -> int:
    """Count the lines without blank ones and comments; in Python also without imports and docstrings."""
    if suffix != ".py":
        return sum(1 for line in COMMENT.sub("", text).splitlines() if line.strip())
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    free = {t.start[0] for t in tokens if t.type == tokenize.COMMENT and not t.line[: t.start[1]].strip()}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Expr) and is_free(node):
            free.update(range(node.lineno, (node.end_lineno or 0) + 1))
    return sum(1 for n, line in enumerate(text.splitlines(), 1) if line.strip() and n not in free)


def is_free(node: ast.Import | ast.ImportFrom | ast.Expr) -> bool:
    """Return True for an import, and for a text that stands by itself, below a constant or a field too."""
    return not isinstance(node, ast.Expr) or (
        isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )


def granted(area: str) -> int:
    """The lines of rooms that packages of an area were given."""
    raises = (each for name, given in RAISED.items() if in_area(name, area) for each in given)
    return sum(lines for lines, source, _ in raises if source in ROOMS)


def in_area(name: str, area: str) -> bool:
    return name == area or name.startswith(f"{area}/")


def main() -> None:
    """Print the table of all packages, of localspec as a whole, and of faults."""
    sizes = {name: (count_package(name), CEILINGS.get(name, 0)) for name in packages()}
    whole = sum(today for name, (today, _) in sizes.items() if in_area(name, "localspec"))
    sizes["localspec"] = whole, TOTALS["localspec"] + granted("localspec")
    sizes |= {fault: (len(find_faults(fault)), ceiling) for fault, ceiling in FAULTS.items()}
    print(f"{'package':32}{'today':>8}{'ceiling':>9}{'free':>7}")
    for name, (today, ceiling) in sizes.items():
        print(f"{name:32}{today:8}{ceiling:9}{ceiling - today:7}")


if __name__ == "__main__":
    main()
