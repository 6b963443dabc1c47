"""Errors of the command line: the fault, the nearest known word, and the command's help."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args, get_origin

from cyclopts import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    RepeatArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from localspec.errors import InvalidOptions
from localspec.protocol.options import LONGEST_SHOWN, Options, describe_allowed

if TYPE_CHECKING:
    from cyclopts import Argument

ALIKE = 0.65
TAKES = {int: "a whole number", float: "a number", bool: "true or false", Path: "a path"}


def translate_error(error: CycloptsError) -> InvalidOptions:
    command = " ".join(("localspec", *(error.command_chain or ())))
    return InvalidOptions(_what(error, command), f"See `{command} --help`.")


def _what(error: CycloptsError, command: str) -> str:
    match error:
        case UnknownOptionError(token=token, argument_collection=known):
            names = [name for argument in known if argument.parse for name in argument.names]
            return _no("option", token.keyword or token.value, names, command)
        case UnknownCommandError(unused_tokens=[word, *_], app=app):
            is_option = word.startswith("-")
            names = [name for name in app or () if name.startswith("-") == is_option]
            inner = [f"{name} {word}" for name in names if not is_option and word in app[name]] if app else []
            return _no("option" if is_option else "command", word, names, command, inner)
        case UnusedCliTokensError(unused_tokens=[word, *_]):
            return f"`{command}` takes no further argument: {_shorten_word(word)}"
        case CoercionError(argument=argument, token=token) if argument and token:
            name = token.keyword or _name(argument)
            return f"{name} takes {_describe_values(error, argument)}, not {_shorten_word(token.value)}"
        case MissingArgumentError(argument=argument, keyword=keyword) if argument:
            return f"{keyword} needs a value" if keyword else f"`{command}` needs {_name(argument)}"
        case RepeatArgumentError(token=token):
            return f"{token.keyword} is given twice"
    return str(error).rstrip(".")


def _no(what: str, word: str, known: list[str], command: str, inner: Sequence[str] = ()) -> str:
    """A message for an unknown option or command, with the ``inner`` ones, the nearest, or all."""
    name = word.partition("=")[0] if what == "option" else word
    near = inner or difflib.get_close_matches(name[:LONGEST_SHOWN], known, n=1, cutoff=ALIKE)
    hint = f"; did you mean {near[0]}?" if near else ""
    all_of_them = f"; there are {', '.join(known)}" if what == "command" and not near else ""
    return f"`{command}` has no {what} {_shorten_word(name)}{hint or all_of_them}"


def _describe_values(error: CoercionError, argument: Argument) -> str:
    name = argument.name.lstrip("-").replace("-", "_")
    if name in Options.__struct_fields__ and error.target_type is not bool:
        return describe_allowed(Options, name)
    if get_origin(error.target_type) is Literal:
        *others, last = map(str, get_args(error.target_type))
        return f"{', '.join(others)} or {last}"
    return TAKES.get(error.target_type or str, "something else")


def _name(argument: Argument) -> str:
    return argument.name.lstrip("-").upper()


def _shorten_word(word: str) -> str:
    short = word if len(word) <= LONGEST_SHOWN else word[:LONGEST_SHOWN] + "…"
    return short if short.startswith("-") else repr(short)
