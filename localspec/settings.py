"""Every setting with its allowed values, its default and its meaning."""

from __future__ import annotations

import ast
import inspect
import tomllib
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from localspec.config import SECTION_KEYS, SEE_SETTINGS, TABLES, Config, check_origins
from localspec.errors import InvalidOptions
from localspec.protocol.options import allowed, check_value, choices, unknown_key
from localspec.renamed import RENAMED

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
        """All allowed values, if they are a few; else empty."""
        return choices(self.struct, self.name)

    def may_stand_in(self, kind: str) -> bool:
        """Return True if a section of ``kind``, ``models`` or ``workspaces``, can have it."""
        return self.table not in ("daemon", "http") and self.name in SECTION_KEYS[kind]

    def parse(self, text: str) -> Any:
        """Convert a typed value: lists in TOML's notation, other values as they are.

        Raises :class:`InvalidOptions`, naming the allowed values.
        """
        is_list = self.takes.startswith("a list")
        value = _list(text) if is_list else text
        remedy = LIST_REMEDY if is_list else SEE_SETTINGS
        check_value(self.struct, self.name, value, said=self.key, remedy=remedy)
        parsed = getattr(msgspec.convert({self.name: value}, self.struct, strict=False), self.name)
        if self.key == "http.origins":
            check_origins(parsed, SEE_SETTINGS)
        return parsed


@cache
def settings() -> tuple[Setting, ...]:
    """All settings, in the order of the file."""
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
    """The setting of a name, with or without its table, or of an earlier name with it.

    Raises :class:`InvalidOptions` naming the nearest.
    """
    present = {".".join(old): ".".join(new) for old, new in RENAMED.items() if new is not None}
    key = present.get(key, key)
    for setting in settings():
        if key in (setting.key, setting.name):
            return setting
    near = [name for setting in settings() for name in (setting.key, setting.name)]
    raise InvalidOptions(unknown_key("setting", key, near), "See `localspec config show`.")


def _list(text: str) -> object:
    try:
        return tomllib.loads(f"list = {text}")["list"]
    except (ValueError, RecursionError):
        return text


def _meanings(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The docstring under each field, read from the source."""
    (declared,) = ast.parse(inspect.getsource(struct)).body
    assert isinstance(declared, ast.ClassDef)
    return {
        field.target.id: meaning
        for field, sentence in pairwise(declared.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(sentence, ast.Expr) and isinstance(meaning := ast.literal_eval(sentence.value), str)
    }
