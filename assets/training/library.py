"""The standard library's public names with their documentation, out of the running interpreter."""

import importlib
import inspect
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

SKIPPED_MODULES = frozenset(
    ("__future__", "__main__", "antigravity", "this", "idlelib", "lib2to3", "test", "turtledemo")
    + ("pydoc_data", "ensurepip", "encodings", "genericpath", "posixpath", "ntpath", "nturl2path", "opcode")
    + ("sre_compile", "sre_constants", "sre_parse", "posix", "nt")
)
SUBMODULES = (
    *("collections.abc", "concurrent.futures", "ctypes.util", "curses.ascii", "curses.panel", "dbm.dumb"),
    *("email.message", "email.parser", "email.policy", "email.header", "email.utils", "email.mime.text"),
    *("html.entities", "html.parser", "http.client", "http.cookiejar", "http.cookies", "http.server"),
    *("importlib.abc", "importlib.machinery", "importlib.metadata", "importlib.resources", "importlib.util"),
    *("json.decoder", "json.encoder", "logging.config", "logging.handlers", "multiprocessing.pool"),
    *("multiprocessing.shared_memory", "os.path", "unittest.mock", "urllib.error", "urllib.parse"),
    *("urllib.request", "urllib.robotparser", "wsgiref.simple_server", "wsgiref.util", "xml.dom"),
    *("xml.dom.minidom", "xml.etree.ElementTree", "xml.sax", "xml.sax.saxutils", "xmlrpc.client"),
)
# Classes whose methods are asked for by name as functions are.
CLASSES_WITH_METHODS = (
    *(
        "str",
        "bytes",
        "list",
        "dict",
        "set",
        "tuple",
        "int",
        "float",
        "pathlib.Path",
        "re.Pattern",
        "re.Match",
    ),
    *("collections.Counter", "collections.deque", "collections.OrderedDict", "datetime.datetime"),
    *("datetime.date", "datetime.timedelta", "argparse.ArgumentParser", "logging.Logger", "threading.Thread"),
)
LONGEST_SENTENCE = 240  # characters; a longer one is cut after a word
LONGEST_SIGNATURE = 80  # characters
LONGEST_EXAMPLE = 70  # characters
MOST_SENTENCES = 3
ABBREVIATION = re.compile(r"(?:e\.g|i\.e|etc|vs|cf|resp)\.$", re.IGNORECASE)
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`'\"(])")
SIGNATURE_LINE = re.compile(r"[\w.]+\(.*\)\s*(?:(?:-+>|--|=)\s*(?P<result>.*))?$")


@dataclass(frozen=True, slots=True)
class Entry:
    """One name of the library with what is said about it."""

    path: str
    kind: str  # "function", "class", "method" or "module"
    signature: str  # with its parentheses; empty for a module
    sentences: tuple[str, ...]  # one to MOST_SENTENCES
    example: str  # a line of code; empty for a module

    @property
    def module(self) -> str:
        """The module to import for it; empty for a builtin."""
        return "" if self.kind == "module" else self._owner

    @property
    def _owner(self) -> str:
        parts = self.path.split(".")
        return next(
            (name for end in range(len(parts), 0, -1) if (name := ".".join(parts[:end])) in sys.modules), ""
        )


def import_quietly(name: str) -> ModuleType | None:
    """The module; None where this platform lacks it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(name)
        except ImportError:
            return None


def library_modules() -> dict[str, ModuleType]:
    """The documented modules by name, in alphabetical order; `builtins` among them."""
    top = {name for name in sys.stdlib_module_names if not name.startswith("_")} - SKIPPED_MODULES
    found = {name: import_quietly(name) for name in sorted(top | set(SUBMODULES))}
    return {name: module for name, module in found.items() if module is not None}


def public_members(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Functions and classes that a module offers, not those it imported for itself."""
    listed = getattr(module, "__all__", None)
    for name in sorted(listed if listed is not None else vars(module)):
        value = getattr(module, name, None)
        if name.startswith("_") or not (inspect.isclass(value) or inspect.isroutine(value)):
            continue
        home = (getattr(value, "__module__", None) or module.__name__).lstrip("_")
        if listed is not None or home.split(".")[0] == module.__name__.split(".")[0]:
            yield name, value


def without_signatures(lines: list[str]) -> tuple[list[str], str]:
    """A paragraph's lines without leading signatures, and the first signature's result."""
    result = ""
    while lines and (match := SIGNATURE_LINE.match(lines[0].strip())):
        result = result or (match["result"] or "").strip()
        lines = lines[1:]
        while lines and lines[0].startswith("  "):  # the result goes on
            lines = lines[1:]
    return lines, result


def plain_paragraphs(documentation: str) -> list[str]:
    """The prose at the beginning of a docstring, one line a paragraph, signatures left out."""
    found: list[str] = []
    result = ""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(documentation)):
        lines = paragraph.strip("\n").splitlines()
        if not found:
            lines, returned = without_signatures(lines)
            result = result or returned
        text = " ".join(" ".join(lines).split())
        text, _, session = text.partition(" >>> ")
        if session:
            text = re.sub(r"(?:^|\s)\S*[Ee]xamples?\b.{0,20}$", "", text)
        if re.match(r"(?:>>>|[-*:+|=]|\d+\.)", text):
            break
        if " " in text:  # a single word is a name, and a heading at best
            found.append(text)
        if text.endswith(":"):
            break
    return found or [result]


def split_sentences(text: str) -> list[str]:
    """The sentences of a paragraph; an abbreviation ends none."""
    sentences: list[str] = []
    for part in SENTENCE_END.split(text):
        if sentences and ABBREVIATION.search(sentences[-1]):
            sentences[-1] += " " + part
        else:
            sentences.append(part)
    return sentences


def finished(sentence: str) -> str:
    """A sentence of bounded length that begins with a capital and ends with a full stop."""
    if len(sentence) > LONGEST_SENTENCE:
        sentence = sentence[:LONGEST_SENTENCE].rsplit(" ", 1)[0]
    sentence = sentence.rstrip(" :;,-")
    if sentence[:1].islower() and sentence[:2].isalpha():
        sentence = sentence[0].upper() + sentence[1:]
    return sentence if sentence.endswith((".", "!", "?")) else sentence + "."


def first_sentences(documentation: str | None) -> tuple[str, ...]:
    """The first sentences of a docstring; none where it has no prose."""
    paragraphs = plain_paragraphs(documentation or "")[:2]
    sentences = [each for paragraph in paragraphs for each in split_sentences(paragraph)]
    return tuple(finished(each) for each in sentences[:MOST_SENTENCES] if " " in each)


def default_text(value: object) -> str:
    """A default as it is written; `...` for a long one or an object."""
    text = repr(value) if isinstance(value, int | float | str | bytes | bool | None) else "..."
    return text if len(text) <= 12 else "..."


def signature_text(value: Any, documentation: str) -> str:
    """The parameters in parentheses; `(...)` where the interpreter does not know them."""
    try:
        parameters = list(inspect.signature(value).parameters.values())
    except (ValueError, TypeError):
        match = re.match(r"[\w.]+(\([^)]*\))", documentation.strip())
        return match[1] if match and len(match[1]) <= LONGEST_SIGNATURE else "(...)"
    words = []
    for parameter in parameters:
        if parameter.name in ("self", "cls") or parameter.name.startswith("_"):
            continue
        star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        default = "" if parameter.default is parameter.empty else "=" + default_text(parameter.default)
        words.append(star + parameter.name + default)
    while len(", ".join(words)) > LONGEST_SIGNATURE:
        words = [*words[: -2 if words[-1] == "..." else -1], "..."]
    return f"({', '.join(words)})"


def example_line(path: str, kind: str, signature: str, documentation: str) -> str:
    """A call out of the docstring's own session, or one with the required parameters."""
    name = path.rsplit(".", 1)[-1]
    for line in re.findall(r"^\s*>>> (.+)$", documentation, re.MULTILINE):
        if (
            re.search(rf"\b{name}\(", line)
            and len(line) <= LONGEST_EXAMPLE
            and line.count("(") == line.count(")")
        ):
            return str(line)
    words = [each for each in signature[1:-1].split(", ") if each and "=" not in each]
    required = ", ".join(each for each in words if each[0] not in "*.[/")
    if kind != "method":
        return f"{path}({required})"
    owner = path.split(".")[-2].lower()
    return f"{owner if owner not in ('str', 'int', 'set', 'list', 'dict') else 'value'}.{name}({required})"


def entry_of(path: str, kind: str, value: Any) -> Entry | None:
    """The entry of a function, class or method; None without documentation of its own."""
    own = vars(value).get("__doc__") if inspect.isclass(value) else getattr(value, "__doc__", None)
    documentation = own if isinstance(own, str) else ""
    sentences = first_sentences(documentation)
    if not sentences:
        return None
    signature = signature_text(value, documentation)
    return Entry(path, kind, signature, sentences, example_line(path, kind, signature, documentation))


def method_entries(path: str) -> Iterator[Entry]:
    """The documented public methods of one of CLASSES_WITH_METHODS."""
    module, _, name = path.rpartition(".")
    owner = getattr(importlib.import_module(module or "builtins"), name)
    for method in sorted(vars(owner)):
        value = getattr(owner, method)
        if not method.startswith("_") and callable(value):
            entry = entry_of(f"{path}.{method}", "method", value)
            if entry is not None:
                yield entry


def library_entries() -> list[Entry]:
    """Every documented public name once, under its shortest module."""
    entries: dict[str, Entry] = {}
    for name, module in library_modules().items():
        sentences = first_sentences(module.__doc__)
        if sentences and name != "builtins":
            entries[name] = Entry(name, "module", "", sentences, "")
        for member, value in public_members(module):
            path = member if name == "builtins" else f"{name}.{member}"
            entry = entry_of(path, "class" if inspect.isclass(value) else "function", value)
            if entry is not None:
                entries.setdefault(path, entry)
    for path in CLASSES_WITH_METHODS:
        entries.update((entry.path, entry) for entry in method_entries(path))
    return list(entries.values())


def exists(path: str) -> bool:
    """True if a dotted name is a module, a builtin or an attribute of either."""
    head, *rest = path.split(".")
    value: Any = sys.modules.get(head) or getattr(sys.modules["builtins"], head, None)
    for name in rest:
        value = getattr(value, name, None)
    return value is not None
