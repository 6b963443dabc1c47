"""Settings of earlier versions: a renamed one is still read, a removed one left out, each with a notice."""

from __future__ import annotations

from collections.abc import Iterator
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


def rename(values: dict[str, Any]) -> list[str]:
    """Give the settings their present names, in place; returns a notice, without a full stop, for each."""
    notices = []
    for old, new in _places(values):
        table = _table(values, old)
        if old[-1] not in table:
            continue
        value, name = table.pop(old[-1]), ".".join(old)
        if _protects_a_directory(old, value) and _add(values, ("options", "remember"), False):
            now = "remember = false in it is read as options.remember = false, for all directories"
            notices.append(f"{name} is not a setting any more; {now}")
        elif new is None:
            notices.append(f"{name} is not a setting any more, and has no effect")
        else:
            other = "" if _add(values, new, value) else ", which is set, too, and holds"
            notices.append(f"{name} is now named {'.'.join(new)}{other}")
    return notices


def _protects_a_directory(place: Place, value: Any) -> bool:
    """True for a table by which the n-gram memory learns nothing in some directory."""
    sections = value.values() if place == ("workspaces",) and isinstance(value, dict) else ()
    return any(isinstance(each, dict) and each.get("remember") is False for each in sections)


def _places(values: dict[str, Any]) -> Iterator[tuple[Place, Place | None]]:
    """The earlier places that settings may have in these tables, and the present ones."""
    for old, new in RENAMED.items():
        yield old, new
        # A model's section has them by their names alone.
        for name in _table(values, ("models", "")) if old[0] in ("engine", "options") else ():
            yield ("models", name, old[-1]), None if new is None else ("models", name, new[-1])


def _add(values: dict[str, Any], place: Place, value: Any) -> bool:
    """Set a key of a table that is not set; return False if it is."""
    values.setdefault(place[0], {})
    table = _table(values, place)
    is_new = place[-1] not in table
    table.setdefault(place[-1], value)
    return is_new


def _table(values: Any, place: Place) -> dict[str, Any]:
    """The table that a key stands in; an empty one where there is none."""
    for name in place[:-1]:
        values = values.get(name, {}) if isinstance(values, dict) else {}
    return values if isinstance(values, dict) else {}
