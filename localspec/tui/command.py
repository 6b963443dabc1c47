"""A command: its name, argument, help and work, defined once for the prompt, the palette and the keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from localspec.errors import InvalidOptions
from localspec.protocol.options import unknown_key

Work = Callable[[Any, str], Coroutine[Any, Any, None]]
"""called with the chat's screen and the argument"""
Values = Callable[[Any], Awaitable[Mapping[str, str]]]
"""called with the chat's screen; returns the meanings of an argument's values"""
NAMES = {"escape": "Esc", "pageup": "PgUp", "pagedown": "PgDn", "underscore": "_"}
"""parts of keys with another name than the toolkit's"""


def name_key(key: str) -> str:
    """Return the name of a key as users read it: ``Ctrl-O``; a letter alone stays as it is."""
    return key if len(key) == 1 else "-".join(NAMES.get(part, part.title()) for part in key.split("+"))


@dataclass(frozen=True)
class Command:
    """``argument`` names the argument, in brackets if it is optional."""

    name: str
    argument: str
    help: str
    work: Work
    key: str = ""
    """a key that does the same"""
    values: Values | None = None


COMMANDS: dict[str, Command] = {}


def command(
    name: str, argument: str = "", *, key: str = "", values: Values | None = None
) -> Callable[[Work], Work]:
    """Add a function to the commands; the first line of its docstring is the help that users read."""

    def add(work: Work) -> Work:
        help = (work.__doc__ or "").splitlines()[0]
        COMMANDS[name] = Command(name, argument, help, work, key, values)
        return work

    return add


def find_command(name: str) -> Command:
    """The command of this name; raises :class:`InvalidOptions`."""
    if name in COMMANDS:
        return COMMANDS[name]
    known = [f"/{each}" for each in COMMANDS]
    raise InvalidOptions(unknown_key("command", f"/{name}", known), "Type / to see all commands.")


def parse(text: str) -> tuple[str, str] | None:
    """Name and argument of a typed command; None for a message, which may begin with a path."""
    if not text.startswith("/") or "\n" in text:
        return None
    name, _, argument = text[1:].partition(" ")
    return None if "/" in name or not name else (name.lower(), argument.strip())


def beginning(typed: str, known: Iterable[str]) -> list[str]:
    """The items of ``known`` that begin with ``typed``, in any case."""
    return [each for each in known if each.lower().startswith(typed.lower())]
