"""Values that a field of a message takes, in words."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec import inspect

from localspec.protocol.options import Options

WORDS: dict[type[inspect.Type], str] = {
    inspect.AnyType: "any value",
    inspect.BoolType: "`true` or `false`",
    inspect.BytesType: "text (base64)",
    inspect.DictType: "object",
    inspect.RawType: "any value",
}
OPTIONS = "[options](settings.md)"
FEW = 6
WIDE = 2**31
"""bounds from here on only say that a number is a 64-bit integer"""


def takes(field: msgspec.structs.FieldInfo) -> str:
    """Return what a field takes, without ``null``."""
    return _words(inspect.type_info(field.type))


def default_of(field: msgspec.structs.FieldInfo) -> str:
    """Return a field's default as JSON; ``required`` if it has none."""
    if field.required:
        return "required"
    if field.default is None:
        return "not set"
    if field.default is msgspec.NODEFAULT:
        made = field.default_factory
        return f"`{json.dumps(made())}`" if callable(made) else "not set"
    if isinstance(field.default, msgspec.Struct):
        return "`{}`"
    return f"`{json.dumps(field.default)}`"


def _words(kind: Any) -> str:
    if isinstance(kind, inspect.Metadata):
        return _words(kind.type)
    if isinstance(kind, inspect.UnionType):
        kinds = [_words(each) for each in kind.types if not isinstance(each, inspect.NoneType)]
        return " or ".join(kinds)
    if isinstance(kind, inspect.LiteralType):
        return " or ".join(f"`{each}`" for each in kind.values)
    if isinstance(kind, (inspect.IntType, inspect.FloatType)):
        return _number(kind)
    if isinstance(kind, inspect.StrType):
        return "text" if kind.max_length is None else f"text, at most {kind.max_length:,} characters"
    if isinstance(kind, inspect.StructType):
        return OPTIONS if kind.cls is Options else f"object{_names(kind)}"
    if isinstance(kind, (inspect.ListType, inspect.VarTupleType)):
        most = "" if kind.max_length is None else f" at most {kind.max_length:,}"
        item = _words(kind.item_type)
        return f"list of{most} ({item})" if " " in item else f"list of{most} {item}"
    return WORDS.get(type(kind), "any value")


def _names(kind: inspect.StructType) -> str:
    """Return the names of a short object's fields."""
    named = ", ".join(f"`{field.encode_name}`" for field in kind.fields)
    return f" of {named}" if len(kind.fields) <= FEW else ""


def _number(kind: inspect.IntType | inspect.FloatType) -> str:
    name = "integer" if isinstance(kind, inspect.IntType) else "number"
    low, high = kind.ge, kind.le
    if low is not None and high is not None and low > -WIDE and high <= WIDE:
        return f"{name}, {low:,} to {high:,}"
    return f"{name}, at least {low:,}" if low is not None and low > -WIDE else name
