"""Pages of the site made from the code: commands, settings, errors, methods, HTTP fields, HTTP clients."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
from cyclopts import App
from msgspec import inspect
from rich.console import Console

from assets.docs.meanings import MEANINGS
from localspec.cli.app import app
from localspec.config import settings
from localspec.errors import LocalspecError
from localspec.http import anthropic, llama_cpp, ollama, openai, responses, sampling
from localspec.protocol.messages import METHODS, NOTIFICATIONS
from localspec.protocol.options import Options

CLIENTS = Path(__file__).parent.parent.parent / "localspec" / "doctor" / "clients.txt"
INDENT = "    "
"""of the lines of ``CLIENTS`` that are to be copied; others explain them"""
WORDS: dict[type[inspect.Type], str] = {
    inspect.BoolType: "`true` or `false`",
    inspect.DictType: "object",
    inspect.IntType: "integer",
    inspect.FloatType: "number",
    inspect.StrType: "text",
}
SHARED = sampling.TimedSampling
BODIES: tuple[tuple[str, type[msgspec.Struct], Any], ...] = (
    (
        "POST /v1/chat/completions, POST /chat/completions, each of them also with /input_tokens",
        openai.OpenaiChatBody,
        openai.REFUSED_OF_CHATS,
    ),
    ("POST /v1/completions", openai.TextBody, openai.REFUSED_OF_TEXTS),
    (
        "POST /v1/responses, POST /responses, POST /v1/responses/input_tokens",
        responses.ResponsesBody,
        responses.REFUSED,
    ),
    ("POST /v1/messages, POST /v1/messages/count_tokens", anthropic.MessagesBody, anthropic.REFUSED),
    ("POST /infill", llama_cpp.InfillBody, llama_cpp.REFUSED_OF_GAPS),
    ("POST /completion, POST /completions", llama_cpp.CompletionBody, llama_cpp.REFUSED_OF_TEXTS),
    ("POST /tokenize", llama_cpp.TokenizeBody, {}),
    ("POST /detokenize", llama_cpp.DetokenizeBody, {}),
    ("POST /api/generate", ollama.GenerateBody, ollama.REFUSED_OF_TEXTS),
    ("POST /api/chat", ollama.OllamaChatBody, ollama.REFUSED_OF_CHATS),
    ("POST /api/show", ollama.ShowBody, {}),
)
"""addresses, their body, and its refused fields with the values that change nothing"""


def pages() -> dict[str, str]:
    """Return the text of each page by its place in the site."""
    made: dict[str, tuple[str, Callable[[], str]]] = {
        "commands": ("Command line", _commands),
        "settings": ("All settings", _settings),
        "errors": ("Errors by code", _errors),
        "methods": ("Methods and notifications of the wire", _methods),
        "http-fields": ("Fields of the HTTP dialects", _http_fields),
        "http-clients": ("Settings of HTTP clients", _http_clients),
    }
    return {f"reference/{name}.md": f"# {title}\n\n{body()}" for name, (title, body) in made.items()}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; bars and line ends in cells are escaped."""
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += [f"| {' | '.join(map(_cell, row))} |" for row in rows]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|").replace("<", r"\<")


def _commands() -> str:
    """Return the help of every command."""
    return "\n".join(map(_command, _names(app)))


def _names(of: App, name: str = "") -> Iterator[str]:
    """Yield the words of every command, those of the group ``of`` beginning with ``name``."""
    yield name
    for word in of:
        if word not in ("--help", "-h", "--version"):
            yield from _names(of[word], f"{name} {word}".strip())


def _command(name: str) -> str:
    printed = StringIO()
    app.help_print(name.split(), console=Console(file=printed, width=100))
    help_text = "\n".join(line.rstrip() for line in printed.getvalue().strip().splitlines())
    return f"## {f'localspec {name}'.strip()}\n\n```text\n{help_text}\n```\n"


def _settings() -> str:
    return table(
        ("key", "takes", "default", "meaning"),
        ((f"`{each.key}`", each.takes, _default(each.default), each.meaning) for each in settings()),
    )


def _default(value: object) -> str:
    return "not set" if value is None else f"`{json.dumps(value)}`"


def _errors() -> str:
    """Return a row for each error class with a code."""
    found: list[type[LocalspecError]] = [LocalspecError]
    for kind in found:
        found += [each for each in kind.__subclasses__() if each.__module__ == LocalspecError.__module__]
    rows = [
        (f"`{kind.code}`", f"`{kind.__name__}`", str(int(kind.exit_code)), kind.default_remedy)
        for kind in found
        if "code" in vars(kind)
    ]
    return table(("code", "class", "exit code", "what to do"), sorted(rows))


def _methods() -> str:
    """Return the parameters of each method, and the fields of each notification."""
    sent = [
        (name if struct is kind else f"{name}, kind {kind.__struct_config__.tag}", kind)
        for name, struct in NOTIFICATIONS.items()
        for kind in getattr(struct, "__args__", (struct,))
    ]
    parts = ["## Methods\n", *(_message(*each) for each in METHODS.items())]
    return "\n".join([*parts, "## Notifications\n", *(_message(*each) for each in sent)])


def _message(name: str, struct: type[msgspec.Struct]) -> str:
    rows = [
        (f"`{each.encode_name}`", _takes(each), _default_of(each)) for each in msgspec.structs.fields(struct)
    ]
    return f"### `{name}`\n\n{table(('field', 'takes', 'default'), rows) if rows else 'No parameters.'}\n"


def _default_of(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    if field.default is msgspec.NODEFAULT:
        return _default(field.default_factory())
    return "`{}`" if isinstance(field.default, msgspec.Struct) else _default(field.default)


def _takes(field: msgspec.structs.FieldInfo) -> str:
    """Return what a field takes, without ``null``."""
    return _words(inspect.type_info(field.type))


def _words(kind: Any) -> str:
    match kind:
        case inspect.Metadata():
            return _words(kind.type)
        case inspect.UnionType():
            return " or ".join(_words(each) for each in kind.types if not isinstance(each, inspect.NoneType))
        case inspect.LiteralType():
            return " or ".join(f"`{each}`" for each in kind.values)
        case inspect.StructType(cls=cls):
            names = ", ".join(f"`{field.encode_name}`" for field in kind.fields)
            return "[options](settings.md)" if cls is Options else f"object of {names}"
        case inspect.ListType() | inspect.VarTupleType():
            return f"list of ({_words(kind.item_type)})"
    return WORDS.get(type(kind), "any value") + _bounds(kind)


def _bounds(kind: Any) -> str:
    """Return the bounds of a number or text; wide ones only say that a number has 64 bits."""
    if (longest := getattr(kind, "max_length", None)) is not None:
        return f", at most {longest:,} characters"
    low, high = (
        limit if limit is not None and abs(limit) < 2**31 else None
        for limit in (getattr(kind, "ge", None), getattr(kind, "le", None))
    )
    if low is None:
        return ""
    return f", at least {low:,}" if high is None else f", {low:,} to {high:,}"


def _http_fields() -> str:
    """Return the fields that choose tokens, then those of each address beside them."""
    sections = [f"## Sampling and deadlines\n\n{_fields(SHARED, sampling.REFUSED, ())}"]
    for title, struct, refused in BODIES:
        shared = (*SHARED.__struct_fields__, *sampling.REFUSED) if issubclass(struct, SHARED) else ()
        also = "All fields of [sampling and deadlines](#sampling-and-deadlines), and:\n\n" if shared else ""
        sections.append(f"## {title}\n\n{also}{_fields(struct, refused, shared)}")
    return "\n".join(sections)


def _fields(struct: type[msgspec.Struct], refused: Any, left_out: Sequence[str]) -> str:
    """Return the table of the accepted fields of a body, then of the refused ones."""
    harmless = {name: values for name, values in refused.items() if isinstance(values, tuple)}
    rows = [
        (
            f"`{each.encode_name}`",
            _takes(each),
            "required" if each.required else "accepted",
            MEANINGS[each.encode_name],
        )
        for each in msgspec.structs.fields(struct)
        if each.name not in (*left_out, *harmless)
    ]
    for name in (each for each in harmless if each not in left_out or each in SHARED.__struct_fields__):
        others = " or ".join(f"`{json.dumps(each)}`" for each in harmless[name])
        rows.append((f"`{name}`", "", "refused" + (f", unless {others}" if others else ""), ""))
    return table(("field", "takes", "treatment", "meaning"), rows)


def _http_clients() -> str:
    """Return a section for each program of ``localspec doctor --clients``."""
    return "\n".join(map(_client, CLIENTS.read_text("utf-8").strip().split("\n\n")))


def _client(text: str) -> str:
    title, *lines = text.split("\n")
    parts = [f"## {title}\n"]
    for line in lines:
        parts.append(line if line.startswith(INDENT) else f"\n{line.strip()}\n")
    return "\n".join(parts) + "\n"
