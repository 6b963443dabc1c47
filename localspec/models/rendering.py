"""The process that renders chat templates: a :class:`localspec.child.Child` of the one that has the model.

Jinja's sandbox keeps a template to texts, lists and numbers; the limits of the process are for what such a
program makes of them. Results are lines of their kinds, followed by texts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from localspec.child import limit_time, serve

MAX_SOURCE = 100_000
"""characters; well-known models have up to 20,000"""
MAX_CHARS = 8_000_000
"""characters of a rendering"""
LONGEST_ERROR = 1000


class Refusal(TemplateError):
    """A template's own error, by ``raise_exception``."""


class _Generation(Extension):
    """The block ``{% generation %}``, by which transformers marks text to train on: only its content."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_call_block"), [], [], body).set_lineno(line)

    def _call_block(self, caller: Callable[[], str]) -> str:
        return caller()


def _refuse(message: object) -> NoReturn:
    raise Refusal(str(message))


def _format_now(form: str) -> str:
    return datetime.now().strftime(form)


def _as_json(value: object, ensure_ascii: bool = False, **options: Any) -> str:
    """JSON as transformers and llama.cpp write it: Jinja's own filter sorts keys and escapes HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


ENVIRONMENT = ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
)
ENVIRONMENT.globals |= {"raise_exception": _refuse, "strftime_now": _format_now}
ENVIRONMENT.filters |= {"tojson": _as_json, "safe": str}


@lru_cache(maxsize=4)
def compile_template(source: str) -> Template:
    if len(source) > MAX_SOURCE:
        raise ValueError(f"it is longer than {MAX_SOURCE} characters")
    return ENVIRONMENT.from_string(source)


def render(source: str, variables: Mapping[str, Any]) -> tuple[str, str]:
    """Return "text" and a template's text, or "broken", "refused" or "failed" and an error message. Raises
    MemoryError: what it has left may be too little for the next template."""
    try:
        template = compile_template(source)
    except Exception as error:
        # Any exception is the source's fault: besides TemplateError nesting too deep, or numbers too long.
        return "broken", _describe(error)
    try:
        text = template.render(variables)
    except Refusal as error:
        return "refused", _describe(error)
    except Exception as error:
        # As above, and errors of Python's own methods.
        return "failed", _describe(error)
    if len(text) > MAX_CHARS:
        return "failed", f"its text is longer than {MAX_CHARS} characters"
    return "text", text


def _describe(error: Exception) -> str:
    if isinstance(error, MemoryError):
        raise error
    return (str(error) or type(error).__name__)[:LONGEST_ERROR]


def answer(work: tuple[str, Mapping[str, Any], float]) -> bytes:
    """The result of a rendering, as UTF-8, within some seconds."""
    source, variables, seconds = work
    limit_time(seconds)
    kind, text = render(source, variables)
    try:
        return f"{kind}\n{text}".encode()
    except UnicodeEncodeError as error:
        return f"failed\nits text is not valid Unicode: {error}".encode()


if __name__ == "__main__":
    # Modules are imported at the first text, and at the first error: behind this no file can be opened.
    render("{{ lipsum(1) | wordwrap | striptags | tojson }}{{ strftime_now('%Y') }}{{ 1 // 0 }}", {})
    serve(answer)
