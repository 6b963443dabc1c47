"""What a person may set in the editor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from localspec.protocol.options import readable, unknown_key

SECTION = "localspec"


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All of them; none is needed."""

    enabled: bool = True
    """whether there are completions at all"""
    automatic: bool = True
    """whether they come by themselves, or only when they are asked for"""
    multiline: bool = True
    """whether one may have several lines"""
    model: str | None = None
    """the model that answers; not set: the one that localspec is configured to use"""
    max_ms: Annotated[int, Meta(ge=1, le=600_000)] = 5000
    """milliseconds after which nothing is shown any more"""
    excluded_languages: Annotated[tuple[str, ...], Meta(max_length=1000)] = ()
    """languages of which nothing is sent"""


FIELDS = {field.encode_name: field for field in msgspec.structs.fields(Settings)}


def section(values: Any) -> Mapping[str, Any]:
    """Ours of an editor's settings; some send that alone."""
    if not isinstance(values, Mapping):
        return {}
    if SECTION in values:
        own = values[SECTION]
        return own if isinstance(own, Mapping) else {}
    # Some send all that they know: others' settings are sections, ours are none.
    return {name: value for name, value in values.items() if not isinstance(value, Mapping)}


def read_settings(values: Mapping[str, Any], base: Settings) -> tuple[Settings, list[str]]:
    """``base`` with what ``values`` change, and a sentence for each that cannot be."""
    changed: dict[str, Any] = {}
    wrong: list[str] = []
    for name, value in values.items():
        field = FIELDS.get(name)
        if field is None:
            wrong.append(unknown_key("setting", str(name)[:40], list(FIELDS)))
            continue
        try:
            changed[field.name] = msgspec.convert(value, field.type)
        except msgspec.ValidationError as error:
            wrong.append(f"{name}: {readable(error)}")
    return msgspec.structs.replace(base, **changed), wrong
