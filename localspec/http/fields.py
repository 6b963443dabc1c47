"""Fields of bodies and of answers that several dialects share."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from localspec.errors import InvalidOptions, ShuttingDown
from localspec.protocol.options import Options
from localspec.protocol.results import Result

OPTIONS = msgspec.json.schema_components((Options,))[1]["Options"]
Ours = Annotated[dict[str, Any], Meta(extra_json_schema={"properties": OPTIONS["properties"]})]
"""options by the names of :class:`Options`"""


def length_of(*limits: int | None) -> int | None:
    """Return the first limit that is given, in tokens; None if there is none or it is negative."""
    longest = next((each for each in limits if each is not None), -1)
    return None if longest < 0 else longest


def refuse(body: msgspec.Struct, fields: dict[str, tuple[Any, ...]]) -> None:
    """Raise :class:`InvalidOptions` if one of ``fields`` is set to a value other than the listed ones, which
    change nothing: ignoring it would give another answer than the one requested."""
    for name, harmless in fields.items():
        value = getattr(body, name)
        if value is not None and not any(_is_same(value, each) for each in harmless):
            others = " or ".join(msgspec.json.encode(each).decode() for each in harmless)
            instead = f", or set it to {others}" if others else ""
            raise InvalidOptions(f"{name} is not supported", f"Leave {name} out{instead}.")


def _is_same(value: Any, other: Any) -> bool:
    """Compare two JSON values; a number is not a truth value."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def uncut(result: Result) -> Result:
    """Return the result. Raises :class:`ShuttingDown` if it was cancelled: the client is still connected, so
    the daemon's end cancelled it."""
    if result.finish_reason == "cancelled":
        raise ShuttingDown("the daemon was stopped before the answer was complete")
    return result


def statistics(result: Result) -> dict[str, Any]:
    """Return the value of an answer's field ``localspec``: a result without its text."""
    fields: dict[str, Any] = msgspec.to_builtins(result)
    del fields["text"]
    return fields
