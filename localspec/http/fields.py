"""What the dialects have in common: some fields of bodies, and some of answers."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from localspec.errors import InvalidOptions, ShuttingDown
from localspec.protocol.messages import Completions
from localspec.protocol.options import Options
from localspec.protocol.results import Result

OPTIONS = msgspec.json.schema_components((Options,))[1]["Options"]
Ours = Annotated[dict[str, Any], Meta(extra_json_schema={"properties": OPTIONS["properties"]})]
"""options by our own names"""


def length_of(*said: int | None) -> int | None:
    """How many tokens at most, by the first of these that was said; less than 0 is as if none was."""
    longest = next((each for each in said if each is not None), -1)
    return None if longest < 0 else longest


def refuse(body: msgspec.Struct, fields: dict[str, tuple[Any, ...]]) -> None:
    """Raises :class:`InvalidOptions` for a field whose value is none of those that change nothing: an answer
    that does without it would be another one than was asked for."""
    for name, harmless in fields.items():
        value = getattr(body, name)
        if value is not None and value not in harmless:
            others = " or ".join(msgspec.json.encode(each).decode() for each in harmless)
            instead = f", or say {others}" if others else ""
            raise InvalidOptions(f"{name} is not supported", f"Leave {name} out{instead}.")


def uncut(result: Result) -> Result:
    """The result. Raises :class:`ShuttingDown` for what was ended from outside: who asked has not hung up, so
    it was the daemon's end."""
    if result.finish_reason == "cancelled":
        raise ShuttingDown("the daemon ended before the answer did")
    return result


def text_of(filled: Completions) -> str:
    """What fills a gap, as it is shown."""
    return filled.items[0].text if filled.items else ""


def statistics(result: Result) -> dict[str, Any]:
    """Our own account of a result, without its text."""
    told: dict[str, Any] = msgspec.to_builtins(result)
    del told["text"]
    return told
