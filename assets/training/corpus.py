"""The code of the running interpreter's standard library: files and the definitions in them."""

import ast
import sysconfig
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .chat import has_special_token
from .errors import RecipeError

# Tests and tables of encodings would be a third of the text and teach neither style nor API.
SKIPPED_FOLDERS = frozenset(
    ("site-packages", "dist-packages", "test", "tests", "idle_test", "lib2to3")
    + ("encodings", "turtledemo", "ensurepip", "pydoc_data")
)
SHORTEST_FILE = 200  # characters

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
DefinitionNode = FunctionNode | ast.ClassDef


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of the library; `name` is its path relative to the library's root."""

    name: str
    text: str

    @property
    def module(self) -> str:
        """The dotted name under which Python imports the file."""
        return ".".join(Path(self.name).with_suffix("").parts).removesuffix(".__init__")


@dataclass(frozen=True, slots=True)
class Definition:
    """A function or a class; `source` is the dedented text without decorators."""

    module: str
    path: str
    node: DefinitionNode
    source: str

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def is_function(self) -> bool:
        return isinstance(self.node, FunctionNode)


def library_files(limit: int | None = None) -> list[SourceFile]:
    """The library's own files in a stable order, at most `limit` of them."""
    root = Path(sysconfig.get_paths()["stdlib"])
    found: list[SourceFile] = []
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if SKIPPED_FOLDERS & set(relative.parts) or relative.parts[0].startswith("config-"):
            continue
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        if len(text) > SHORTEST_FILE and not has_special_token(text):
            found.append(SourceFile(relative.as_posix(), text))
        if limit is not None and len(found) == limit:
            break
    if not found:
        raise RecipeError(f"No Python sources under {root}: use a Python that ships its library.")
    return found


def split_files(files: list[SourceFile], hold_back_every: int) -> tuple[list[SourceFile], list[SourceFile]]:
    """Whole files for training and whole files held back: no function is in both."""
    held_back = files[hold_back_every - 1 :: hold_back_every]
    names = {file.name for file in held_back}
    return [file for file in files if file.name not in names], held_back


def parse(text: str) -> ast.Module | None:
    """The syntax tree; None for the few files that are not valid for this interpreter."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def source_of(node: DefinitionNode, lines: list[str]) -> str:
    """The dedented source of a definition, out of its file's lines (with their line ends)."""
    return textwrap.dedent("".join(lines[node.lineno - 1 : node.end_lineno]))


def definitions(file: SourceFile) -> Iterator[Definition]:
    """Functions, classes and their members, outermost first; not what functions define inside."""
    tree = parse(file.text)
    lines = file.text.splitlines(keepends=True)

    def visit(parent: ast.AST, path: str) -> Iterator[Definition]:
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, DefinitionNode):
                member = f"{path}.{node.name}"
                yield Definition(file.module, member, node, source_of(node, lines))
                if isinstance(node, ast.ClassDef):
                    yield from visit(node, member)

    if tree is not None:
        yield from visit(tree, file.module)
