"""Faults of names and imports in a set of modules."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from tests.hygiene.source import ASSETS, PACKAGE, PLUGINS, ROOT, TESTS, FunctionNode, nodes_of, python_files

Modules = Mapping[str, ast.AST]
"""trees by the names of modules; a package has that of its folder"""

STARTS = ("localspec.cli.main", "localspec.daemon.__main__", "localspec.tui.app", "localspec.worker.__main__")
"""modules by which processes start, each for the modules of its package"""
PARTICIPLE = re.compile(
    r"(?!.*(seed|need|feed|speed|embed|shed|ceed)$)\w\w+ed|(un)?(begun|born|bound|broken|brought|built|caught|chosen"
    "|dealt|done|drawn|driven|fallen|felt|foreseen|forgotten|found|frozen|given|gone|grown|held|hidden|hung|kept"
    "|known|laid|learnt|led|left|lent|lost|made|meant|met|overwritten|paid|proven|said|seen|sent|shown|sold|spelt"
    "|spent|spoken|stolen|stood|swept|taken|thought|thrown|told|torn|understood|won|worn|woven|written)"
)
PARTICLE = re.compile("again|as|at|by|for|from|in|into|of|off|on|out|over|through|to|up|with")


def bound_names(statement: ast.AST) -> list[str]:
    """The names that a statement binds, without those of its inner statements."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [statement.name]
        case ast.Import() | ast.ImportFrom():
            return [each.asname or each.name for each in statement.names]
        case ast.Assign() | ast.AnnAssign(value=ast.expr()):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names = (node for each in targets for node in ast.walk(each) if isinstance(node, ast.Name))
            return [name.id for name in names if isinstance(name.ctx, ast.Store)]
    return []


def find_double_names(modules: Modules) -> list[str]:
    """Names that a module binds twice; alternatives, as by ``if`` and ``try``, do not count."""
    places = [f"{m}: {name}" for m in modules for s in body(modules[m]) for name in bound_names(s)]
    return [place for place, times in Counter(places).items() if times > 1]


def body(tree: ast.AST) -> list[ast.AST]:
    return list(ast.iter_child_nodes(tree))


def imports_of(nodes: Iterable[ast.AST], modules: Modules) -> set[str]:
    """The modules that import statements among the nodes name."""
    named = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            named |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            inner = {f"{node.module}.{each.name}" for each in node.names}
            named |= inner & modules.keys() or {str(node.module)}
    return named & modules.keys()


def find_self_imports(modules: Modules) -> list[str]:
    return [name for name, tree in modules.items() if name in imports_of(ast.walk(tree), modules)]


def find_inner_imports(modules: Modules) -> list[str]:
    return [place for name in modules for place in inner_imports(name, modules)]


def inner_imports(module: str, modules: Modules) -> dict[str, set[str]]:
    """The import statements inside functions of a module: their places, and the modules that they name."""
    functions = [node for node in ast.walk(modules[module]) if isinstance(node, FunctionNode)]
    nodes = {node for each in functions for node in ast.walk(each) if isinstance(node, ast.stmt)}
    places = {f"{module}:{node.lineno}": imports_of([node], modules) for node in nodes}
    return {place: named for place, named in places.items() if named}


def find_late_imports(modules: Modules) -> list[str]:
    """Imports inside functions of modules that the top, or the start of the process, has loaded."""
    tops = {name: imports_of(top_nodes(tree), modules) for name, tree in modules.items()}
    found = []
    for module in modules:
        starts = [each for each in STARTS if each in modules and module.startswith(each.rpartition(".")[0])]
        loaded: set[str] = set()
        todo = {module, *starts}
        while todo:
            name = todo.pop()
            loaded.add(name)
            todo |= ({name.rpartition(".")[0]} | tops[name]) & modules.keys() - loaded
        found += [place for place, named in inner_imports(module, modules).items() if named & loaded]
    return found


def top_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All that is run when a module is imported."""
    for child in ast.iter_child_nodes(node):
        is_typing = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        if not isinstance(child, FunctionNode) and not is_typing:
            yield child
            yield from top_nodes(child)


def find_low_constants(modules: Modules) -> list[str]:
    """Constants below the first function or class that need none of them."""
    found = []
    for module, tree in modules.items():
        own: set[str] = set()
        for statement in body(tree):
            used = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
            if isinstance(statement, FunctionNode | ast.ClassDef) or used & own:
                own.update(bound_names(statement))
            elif own and isinstance(statement, ast.Assign | ast.AnnAssign):
                found += [f"{module}: {name}" for name in bound_names(statement) if name.isupper()]
    return found


def find_participles(modules: Modules) -> list[str]:
    """Functions named by a participle without a noun, as ``_chosen`` or ``left_out``, and no properties."""
    found = []
    for module, tree in modules.items():
        for node in (each for each in ast.walk(tree) if isinstance(each, FunctionNode)):
            first, *others = node.name.strip("_").split("_")
            is_property = any("property" in ast.unparse(each) for each in node.decorator_list)
            if PARTICIPLE.fullmatch(first) and all(map(PARTICLE.fullmatch, others)) and not is_property:
                found.append(f"{module}: {node.name}")
    return found


def find_shared_classes(modules: Modules) -> list[str]:
    """Names of classes in more than one module."""
    names = [each.name for t in modules.values() for each in body(t) if isinstance(each, ast.ClassDef)]
    return [name for name, times in Counter(names).items() if times > 1]


CHECKS: dict[str, Callable[[Modules], list[str]]] = {
    "names bound twice": find_double_names,
    "imports of itself": find_self_imports,
    "inner imports of what is loaded": find_late_imports,
    "inner imports": find_inner_imports,
    "constants below functions": find_low_constants,
    "participles": find_participles,
    "class names of several modules": find_shared_classes,
}


def find_faults(fault: str) -> list[str]:
    """Find a fault of :data:`tests.hygiene.ceilings.FAULTS` in localspec; names bound twice everywhere."""
    folders = (PACKAGE, ASSETS, TESTS, PLUGINS) if fault == "names bound twice" else (PACKAGE,)
    names = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in python_files(*folders)}
    return CHECKS[fault]({n.removesuffix(".__init__"): nodes_of(path)[0] for path, n in names.items()})
