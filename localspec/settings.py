"""Every setting with its allowed values, its default and its meaning."""

from __future__ import annotations

import ast
import inspect
import tomllib
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from localspec.config import SECTION_KEYS, SEE_SETTINGS, TABLES, Config, check_origins, check_together
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
        """All allowed values, if they are a few; else empty."""
        return choices(self.struct, self.name)

    @property
    def is_for_models(self) -> bool:
        """Return True if the section of a model can have it."""
        return self.table in ("engine", "options") and self.name in SECTION_KEYS

    def parse(self, text: str, said: str = "") -> Any:
        """Convert a typed value: lists in TOML's notation, one stop string, other values as they are.

        Raises :class:`InvalidOptions` with the allowed values; ``said``: the setting's name there.
        """
        is_list = self.takes.startswith("a list")
        value = _list(text) if is_list else text
        value = [value] if self.name == "stop" and isinstance(value, str) else value
        remedy = LIST_REMEDY if is_list and not said else SEE_SETTINGS
        check_value(self.struct, self.name, value, said=said or self.key, remedy=remedy)
        parsed = getattr(msgspec.convert({self.name: value}, self.struct, strict=False), self.name)
        if self.key == "http.origins":
            check_origins(parsed)
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
    """The setting of a name, with or without its table; raises :class:`InvalidOptions` naming the nearest."""
    for setting in settings():
        if key in (setting.key, setting.name):
            return setting
    near = [name for setting in settings() for name in (setting.key, setting.name)]
    raise InvalidOptions(unknown_key("setting", key, near), "See `localspec config show`.")


def override(config: Config, pairs: Mapping[str, str]) -> Config:
    """``--opt key=value``: any setting in a table of the file."""
    for key, text in pairs.items():
        name = plain_key(key)
        setting = next((each for each in settings() if each.table and name in (each.key, each.name)), None)
        if setting is None:
            known = [each.name for each in settings() if each.table]
            raise InvalidOptions(unknown_key("option", key, known), SEE_SETTINGS)
        value = setting.parse(text, f"--opt {key}")
        table = replace(getattr(config, setting.table), **{setting.name: value})
        config = replace(config, **{setting.table: table})
        models = {
            model: replace(own, engine={knob: v for knob, v in own.engine.items() if knob != setting.name})
            for model, own in config.models.items()
        }
        config = replace(config, models=models)
    return check_together(config)


def plain_key(key: str) -> str:
    """A key without blanks and with underscores; it may be written as a flag, as in ``top-k``."""
    return key.strip().replace("-", "_")


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
