"""The corpus: code, questions and edits made from the running interpreter's standard library."""

import ast
import random
import sysconfig
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .chat import fenced, format_chat, has_special_token
from .edits import FIRST_REQUESTS, mentions, rename_one_of
from .errors import RecipeError
from .infill import code_example, cut_spans
from .presets import Preset

# Tests and tables of encodings would be a third of the text and teach neither style nor API.
SKIPPED_FOLDERS = frozenset(
    ("site-packages", "dist-packages", "test", "tests", "idle_test", "lib2to3")
    + ("encodings", "turtledemo", "ensurepip", "pydoc_data")
)
SHORTEST_FILE = 200  # characters
DOCSTRING_CHARACTERS = (20, 1500)
FUNCTION_CHARACTERS = (80, 1600)

QUESTIONS = (
    "What does `{path}` do?",
    "Explain `{path}`.",
    "How do I use `{path}`?",
    "Tell me about {path} in Python.",
    "{path}",
)
WRITE_REQUESTS = (
    "Write a Python function `{name}` like the one in `{module}`.",
    "Show me the source of `{path}`.",
)
WRITE_FROM_SUMMARY = "Write `{name}({parameters})`: {summary}"

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


@dataclass(slots=True)
class Corpus:
    """Training examples by kind, each a complete text; `held_back` is never trained on."""

    code: list[str] = field(default_factory=list)
    chats: list[str] = field(default_factory=list)
    edits: list[str] = field(default_factory=list)
    held_back: list[str] = field(default_factory=list)


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


def parameter_names(node: FunctionNode) -> list[str]:
    """Positional parameters without self and cls."""
    return [arg.arg for arg in node.args.args if arg.arg not in ("self", "cls")]


def docstring_chats(definition: Definition, rng: random.Random) -> Iterator[str]:
    """Two questions about a public definition, answered by its signature and docstring."""
    docstring = ast.get_docstring(definition.node) or ""
    shortest, longest = DOCSTRING_CHARACTERS
    if not shortest < len(docstring) < longest or definition.name.startswith("_"):
        return
    answer = docstring
    first_line = definition.source.splitlines()[0].rstrip()
    if definition.is_function and first_line.endswith(":"):
        answer = f"{fenced(first_line.strip())}\n{docstring}"
    for question in rng.sample(QUESTIONS, 2):
        yield format_chat([(question.format(path=definition.path), answer)])


def source_chat(definition: Definition, parameters: list[str], rng: random.Random) -> str:
    """A request for a function's source, by name or by its docstring's summary."""
    docstring = ast.get_docstring(definition.node) or ""
    summary = docstring.split("\n\n")[0].replace("\n", " ")[:160]
    wordings = (*WRITE_REQUESTS, WRITE_FROM_SUMMARY) if summary else WRITE_REQUESTS
    request = rng.choice(wordings).format(
        name=definition.name,
        module=definition.module,
        path=definition.path,
        parameters=", ".join(parameters),
        summary=summary,
    )
    return format_chat([(request, fenced(definition.source))])


def parameter_edit(source: str, parameters: list[str], rng: random.Random) -> str | None:
    """A request to rename one of the function's parameters; None if none is used."""
    used = [name for name in parameters if mentions(source, name) >= 2]
    if not used:
        return None
    edit = rename_one_of(source, used, rng)
    return format_chat([(edit.request(FIRST_REQUESTS, rng), edit.answer())])


def add_definitions(corpus: Corpus, file: SourceFile, rng: random.Random) -> None:
    """Append the chats and the edits that a file's definitions make."""
    shortest, longest = FUNCTION_CHARACTERS
    for definition in definitions(file):
        corpus.chats.extend(docstring_chats(definition, rng))
        if not isinstance(definition.node, FunctionNode):
            continue
        if not shortest < len(definition.source) < longest:
            continue
        parameters = parameter_names(definition.node)
        if not definition.name.startswith("__") and rng.random() < 0.5:
            corpus.chats.append(source_chat(definition, parameters, rng))
        edit = parameter_edit(definition.source, parameters, rng)
        if edit is not None:
            corpus.edits.append(edit)


def code_examples(file: SourceFile, preset: Preset, rng: random.Random) -> Iterator[str]:
    """The file in spans, part of them as fill-in-the-middle examples."""
    for span in cut_spans(file.text, preset.span_characters, rng):
        yield code_example(
            span,
            fim_share=preset.fim_share,
            suffix_first_share=preset.suffix_first_share,
            rng=rng,
        )


def add_files(corpus: Corpus, files: list[SourceFile], preset: Preset, rng: random.Random) -> None:
    """Append everything that `files` make, once."""
    for file in files:
        corpus.code.extend(code_examples(file, preset, rng))
        add_definitions(corpus, file, rng)


def build_corpus(preset: Preset) -> Corpus:
    """The whole corpus: `passes` different cuts of the training files, one of the others."""
    trained, held_back = split_files(library_files(preset.files), preset.hold_back_every)
    corpus = Corpus()
    for cut in range(preset.passes):
        add_files(corpus, trained, preset, random.Random(f"corpus {preset.seed} {cut}"))
    unseen = Corpus()
    rng = random.Random(f"held back {preset.seed}")
    add_files(unseen, held_back, preset, rng)
    corpus.held_back = unseen.code + unseen.chats + unseen.edits
    rng.shuffle(corpus.held_back)
    return corpus
