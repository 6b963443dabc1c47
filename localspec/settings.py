"""Every setting by itself: what it takes, its default, and what it means."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from localspec.config import SECTION_KEYS, SEE_SETTINGS, TABLES, Config
from localspec.errors import InvalidOptions
from localspec.protocol.options import allowed, check_value, choices, unknown_key

LIST_REMEDY = """Write a list as in TOML, in quotes for the shell: '["one", "two"]'."""


class Setting(NamedTuple):
    """One key of ``config.toml``; ``table`` is empty for those at its top. A default of None: not set."""

    table: str
    name: str
    takes: str
    default: Any
    meaning: str

    @property
    def key(self) -> str:
        return f"{self.table}.{self.name}" if self.table else self.name

    @property
    def struct(self) -> type[msgspec.Struct]:
        return TABLES.get(self.table, Config)

    @property
    def choices(self) -> tuple[str, ...]:
        """All values that it takes, if there are but a few."""
        return choices(self.struct, self.name)

    def may_stand_in(self, kind: str) -> bool:
        """Whether a section of ``models`` or of ``workspaces`` may have it."""
        return self.table not in ("daemon", "http") and self.name in SECTION_KEYS[kind]

    def parse(self, text: str) -> Any:
        """The value that a person typed: lists in TOML's notation, all else as it is.

        Raises :class:`InvalidOptions`, naming what it takes.
        """
        is_list = self.takes.startswith("a list")
        value = _list(text) if is_list else text
        remedy = LIST_REMEDY if is_list else SEE_SETTINGS
        check_value(self.struct, self.name, value, said=self.key, remedy=remedy)
        return getattr(msgspec.convert({self.name: value}, self.struct, strict=False), self.name)


@cache
def settings() -> tuple[Setting, ...]:
    """All of them, in the order of the file."""
    defaults = Config()
    structs: dict[str, type[msgspec.Struct]] = {"": Config, **TABLES}
    return tuple(
        Setting(
            table, name, allowed(struct, name), getattr(getattr(defaults, table, defaults), name), meaning
        )
        for table, struct in structs.items()
        for name, meaning in _meanings(struct).items()
        if table or name == "model_dirs"
    )


def find(key: str) -> Setting:
    """The setting of a name, with or without its table; raises :class:`InvalidOptions` naming the nearest."""
    for setting in settings():
        if key in (setting.key, setting.name):
            return setting
    near = [name for setting in settings() for name in (setting.key, setting.name)]
    raise InvalidOptions(unknown_key("setting", key, near), "See `localspec config show`.")


def _list(text: str) -> object:
    import tomllib

    try:
        return tomllib.loads(f"list = {text}")["list"]
    except (ValueError, RecursionError):
        return text


def _meanings(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The sentence under each field, which only the source has."""
    import ast
    import inspect

    (declared,) = ast.parse(inspect.getsource(struct)).body
    assert isinstance(declared, ast.ClassDef)
    return {
        field.target.id: said
        for field, sentence in pairwise(declared.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(sentence, ast.Expr) and isinstance(said := ast.literal_eval(sentence.value), str)
    }
