"""From a request's options to a grammar: Lark as llguidance reads it.

JSON has one way of writing a value, with ``", "`` and ``": "`` between its parts and no other spaces: most of
a text is then forced. What the library does not support is an error; nothing is left out silently.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from llguidance import regex_to_lark
from llguidance.gbnf_to_lark import gbnf_to_lark

from localspec.errors import InvalidOptions
from localspec.protocol.options import LONGEST_GRAMMAR, Options

LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
HEADER = "%llguidance {}\n"
LONGEST_GBNF = 1 << 16
"""characters of a grammar in GBNF, which is converted by Python code"""
MOST_NAMES = 10_000
"""keys of all objects in a schema: more take the library several seconds"""
MOST_PLACES = 500
"""parts of a schema that are tried one by one to find the place of an error"""
SCHEMA_ERROR = "failed to compile JSON schema: "
APPENDED = re.compile(r"\n   1 \| |\n<non-verbose/>")
"""begins the listing of the whole grammar, or stands for the parser's state, at the end of messages"""


def grammar_of(options: Options) -> str | None:
    """Return the grammar of the options' constraint; None without one. Raises :class:`InvalidOptions`."""
    if options.schema is not None:
        return grammar_of_schema(options.schema)
    if options.regex is not None:
        return f"{HEADER}start: /{regex_to_lark(_unanchored(options.regex), use_ascii='')}/"
    if options.choice is not None:
        return f"{HEADER}start: {' | '.join(map(json.dumps, options.choice))}"
    if options.grammar is not None and options.grammar_syntax == "gbnf":
        return _from_gbnf(options.grammar)
    return options.grammar


def grammar_of_schema(schema: dict[str, Any]) -> str:
    """Return the grammar of a JSON schema. Raises :class:`InvalidOptions` if it is too large."""
    try:
        text = json.dumps({**schema, "x-guidance": LAYOUT})
    except RecursionError:
        raise InvalidOptions("schema: it is nested too deeply", "Send a flatter schema.") from None
    names = sum(len(part) for _, part in _parts(schema))
    for what, number, most in (("characters", len(text), LONGEST_GRAMMAR), ("names", names, MOST_NAMES)):
        if number > most:
            message = f"schema: it has {number} {what}, {most} are possible"
            raise InvalidOptions(message, "Send a smaller schema.")
    return f"{HEADER}start: %json {text}"


def _unanchored(regex: str) -> str:
    """The expression without the anchors around it: it always matches a whole answer."""
    regex = regex.removeprefix("^")
    escaped = (len(regex) - len(regex.rstrip("$").rstrip("\\")) - 1) % 2
    return regex if escaped else regex.removesuffix("$")


def _from_gbnf(text: str) -> str:
    if len(text) > LONGEST_GBNF:
        message = f"grammar: it has {len(text)} characters, {LONGEST_GBNF} are possible in GBNF"
        raise InvalidOptions(message, "Send a shorter grammar, or one in Lark's syntax.")
    try:
        return str(gbnf_to_lark(text))
    except Exception as error:
        # Of many kinds: for a rule that is missing, plain ones.
        raise InvalidOptions(f"grammar: it is not valid GBNF: {error}", "Correct it.") from None


def message_of(error: str) -> str:
    """The library's message without what it appends."""
    return APPENDED.split(error, maxsplit=1)[0].strip()


def refusal(grammar: str, message: str, check: Callable[[str], str]) -> InvalidOptions:
    """Return the error for a grammar that the library refuses with ``message``; ``check`` returns its message
    for another grammar. The place in a JSON schema is named by its pointer."""
    said = message_of(message)
    _, is_schema, reason = said.partition(SCHEMA_ERROR)
    if not is_schema:
        return InvalidOptions(f"the answer's grammar cannot be used: {said}", "Correct or simplify it.")
    _, _, text = grammar.partition(" %json ")
    try:
        schema = json.loads(text)
        del schema["x-guidance"]
    except (ValueError, KeyError, TypeError):  # a schema within another grammar
        return InvalidOptions(f"a JSON schema cannot be used: {reason}", "Leave that out.")
    for pointer, part in islice(_parts(schema), MOST_PLACES):
        if message_of(check(grammar_of_schema(part))).endswith(SCHEMA_ERROR + reason):
            return InvalidOptions(f"schema: at {pointer or '/'}: {reason}", "Leave that out, or replace it.")
    return InvalidOptions(f"schema: {reason}", "Leave that out, or replace it.")


def _parts(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects in a schema with their JSON pointers, the inner ones first."""
    parts: list[tuple[str, dict[str, Any]]] = []
    left: list[tuple[str, Any]] = [("", schema)]
    while left:
        pointer, value = left.pop()
        if isinstance(value, dict):
            parts.append((pointer, value))
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, child in items:
            if isinstance(child, dict | list):
                name = str(key).replace("~", "~0").replace("/", "~1")
                left.append((f"{pointer}/{name}", child))
    yield from reversed(parts)
