"""Settings of earlier versions: a renamed one is still read, a removed one left out, each with a notice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from localspec.origin import Place, dotted, line_of

RENAMED: dict[Place, Place | None] = {
    ("daemon", "allowed_origins"): ("http", "origins"),
    ("engine", "controller"): None,
    ("engine", "repetition_gate"): None,
    ("engine", "disable_by_batch_size"): None,
}
"""by the earlier table and name of each setting, the present ones; None: removed"""
IN_SECTIONS = ("engine", "options")
"""tables whose settings may also stand in a section, by their names alone"""
SECTIONS = ("models", "workspaces")


class OldKey(NamedTuple):
    """A setting that stands in a file by its earlier name."""

    old: Place
    new: Place | None
    """None: the setting was removed"""
    setting: Place | None
    """table and present name of the setting"""
    value: Any
    is_used: bool
    """false where it stands there by its present name, too, which then holds"""

    def notice(self, text: str, where: str) -> str:
        """The sentence, without a full stop, for the file of this text and name."""
        line = line_of(text, self.old)
        place = where if line is None else f"line {line} of {where}"
        if self.new is None:
            return f"{dotted(self.old)} in {place} is not a setting any more, and has no effect"
        other = "" if self.is_used else ", which is set, too, and holds"
        return f"{dotted(self.old)} in {place} is now named {dotted(self.new)}{other}"


def old_keys(values: Mapping[str, Any]) -> list[OldKey]:
    """The settings that stand in these tables by earlier names."""
    found = []
    for old, new, setting in _places(values):
        table = _table(values, old)
        if old[-1] in table:
            is_used = new is not None and new[-1] not in _table(values, new)
            found.append(OldKey(old, new, setting, table[old[-1]], is_used))
    return found


def by_present_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same tables, with each setting by its present name."""
    found = dict(values)
    for key in old_keys(values):
        without = dict(_table(found, key.old))
        del without[key.old[-1]]
        _replace(found, key.old, without)
        if key.is_used and key.new is not None:
            _replace(found, key.new, {**_table(found, key.new), key.new[-1]: key.value})
    return found


def _places(values: Mapping[str, Any]) -> Iterator[tuple[Place, Place | None, Place | None]]:
    """Yield the places of an earlier name, the places of the present one, and the setting."""
    for old, new in RENAMED.items():
        yield old, new, new
        for kind in SECTIONS if old[0] in IN_SECTIONS else ():
            sections = values.get(kind)
            for name in sections if isinstance(sections, dict) else ():
                yield (kind, name, old[1]), None if new is None else (kind, name, new[1]), new


def _table(values: Mapping[str, Any], place: Place) -> Mapping[str, Any]:
    """The table that a key stands in; empty where there is none."""
    found: Any = values
    for name in place[:-1]:
        found = found.get(name, {}) if isinstance(found, dict) else {}
    return found if isinstance(found, dict) else {}


def _replace(values: dict[str, Any], place: Place, table: dict[str, Any]) -> None:
    """Put a table in its place, changing nothing but ``values`` itself; no other value makes way for it."""
    name, *rest = place[:-1]
    if isinstance(values.get(name, {}), dict):
        values[name] = {**values.get(name, {}), rest[0]: table} if rest else table
