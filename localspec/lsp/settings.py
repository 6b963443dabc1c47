"""The settings of the language server, as the editor sends them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from localspec.protocol.options import readable, unknown_key

SECTION = "localspec"


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All settings; each has a default."""

    enabled: bool = True
    """True if completions are offered"""
    automatic: bool = True
    """True if completions come while the user types, not only if invoked"""
    multiline: bool = True
    """True if a completion may have several lines"""
    model: str | None = None
    """the model of completions; not set: the one that localspec is configured to use"""
    max_ms: Annotated[int, Meta(ge=1, le=600_000)] = 5000
    """milliseconds after which a completion is dropped"""
    excluded_languages: Annotated[tuple[str, ...], Meta(max_length=1000)] = ()
    """language ids of documents from which nothing is sent"""


FIELDS = {field.encode_name: field for field in msgspec.structs.fields(Settings)}


def section(values: Any) -> Mapping[str, Any]:
    """localspec's section of an editor's settings; some editors send only that section."""
    if not isinstance(values, Mapping):
        return {}
    if SECTION in values:
        own = values[SECTION]
        return own if isinstance(own, Mapping) else {}
    # Some send their whole configuration: other programs' settings are sections, ours are plain values.
    return {name: value for name, value in values.items() if not isinstance(value, Mapping)}


def read_settings(values: Mapping[str, Any], base: Settings) -> tuple[Settings, list[str]]:
    """``base`` with the changes in ``values``, and a sentence for each value that is wrong."""
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
