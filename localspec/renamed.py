"""Settings of earlier versions: a renamed one is still read, a removed one left out, each with a notice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Place = tuple[str, ...]
"""the tables that lead to a key, and the key"""

RENAMED: dict[Place, Place | None] = {
    ("daemon", "allowed_origins"): ("http", "origins"),
    ("engine", "controller"): None,
    ("engine", "repetition_gate"): None,
    ("engine", "disable_by_batch_size"): None,
    ("workspaces",): None,
}
"""by their earlier places, the present ones of settings and tables; None: removed"""
IN_SECTIONS = ("engine", "options")
"""tables whose settings may also stand in a section of a model, by their names alone"""


def by_present_names(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The tables with each setting by its present name, and a notice, without a full stop, for each other."""
    found, notices = _copied(values, 3), []
    for old, new in _places(values):
        table = _table(found, old)
        if old[-1] not in table:
            continue
        value = table.pop(old[-1])
        if new is None:
            notices.append(f"{'.'.join(old)} is not a setting any more, and has no effect")
            continue
        is_set = new[-1] in _table(found, new)
        other = ", which is set, too, and holds" if is_set else ""
        notices.append(f"{'.'.join(old)} is now named {'.'.join(new)}{other}")
        if not is_set and isinstance(found.setdefault(new[0], {}), dict):
            _table(found, new)[new[-1]] = value
    return found, notices


def _places(values: Mapping[str, Any]) -> Iterator[tuple[Place, Place | None]]:
    """The earlier places that settings may have in these tables, and the present ones."""
    sections = values.get("models")
    for old, new in RENAMED.items():
        yield old, new
        for name in sections if old[0] in IN_SECTIONS and isinstance(sections, dict) else ():
            yield ("models", name, old[-1]), None if new is None else ("models", name, new[-1])


def _table(values: Any, place: Place) -> dict[str, Any]:
    """The table that a key stands in; an empty one where there is none."""
    for name in place[:-1]:
        values = values.get(name, {}) if isinstance(values, dict) else {}
    return values if isinstance(values, dict) else {}


def _copied(value: Any, depth: int) -> Any:
    """A copy of tables within tables to this depth."""
    is_table = isinstance(value, dict) and depth > 0
    return {name: _copied(each, depth - 1) for name, each in value.items()} if is_table else value
