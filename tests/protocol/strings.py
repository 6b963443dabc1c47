"""The strings that a client can put into parameters, found in the types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec import inspect

from localspec.protocol.messages import METHODS

TEXTS = ("arguments", "content", "description", "prefix", "prompt", "suffix", "system", "text", "thinking")
"""fields of any length: what models read"""


class Field(NamedTuple):
    """A string within the parameters of ``method``; ``longest`` is None where the frame is the only bound."""

    method: str
    path: str
    longest: int | None
    around: Any
    """a function from a value to parameters that hold it, and all else that they must"""


def string_fields() -> Iterator[Field]:
    """Every string of every method."""
    for method, struct in METHODS.items():
        for path, longest, around in _within(inspect.type_info(struct)):
            yield Field(method, path, longest, around)


def _within(kind: inspect.Type) -> Iterator[tuple[str, int | None, Any]]:
    match kind:
        case inspect.StrType(max_length=longest):
            yield "", longest, lambda value: value
        case inspect.UnionType(types=types):
            for each in types:
                yield from _within(each)
        case inspect.VarTupleType(item_type=item):
            for path, longest, around in _within(item):
                yield f"[]{path}", longest, lambda value, around=around: [around(value)]
        case inspect.StructType(fields=fields):
            needed = {each.encode_name: _least(each.type) for each in fields if each.required}
            if kind.tag_field is not None:
                needed[kind.tag_field] = kind.tag
            for field in fields:
                name = field.encode_name
                for path, longest, around in _within(field.type):
                    yield (
                        f".{name}{path}",
                        longest,
                        lambda value, name=name, around=around, needed=needed: needed | {name: around(value)},
                    )


def _least(kind: inspect.Type) -> Any:
    """A value that the type takes."""
    match kind:
        case inspect.StrType():
            return "x"
        case inspect.IntType():
            return 1
        case inspect.LiteralType(values=(first, *_)):
            return first
        case inspect.UnionType(types=types):
            return _least(types[0])
        case inspect.VarTupleType(item_type=item, min_length=least):
            return [_least(item)] * (least or 0)
        case inspect.StructType(fields=fields):
            return {each.encode_name: _least(each.type) for each in fields if each.required}
    raise AssertionError(kind)
