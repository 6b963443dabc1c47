"""Parameters of the wire's methods and fields of its notifications, from their types."""

from __future__ import annotations

import msgspec

from assets.docs.kinds import default_of, takes
from assets.docs.parts import table
from localspec.protocol.messages import METHODS, NOTIFICATIONS


def body() -> str:
    """Return a table of the parameters of each method."""
    return "\n".join(_section(name, struct) for name, struct in METHODS.items())


def notifications() -> str:
    """Return a table of the fields of each notification of the daemon; ``event`` has one for each kind."""
    return "\n".join(
        _section(name if struct is kind else f"{name}, kind {kind.__struct_config__.tag}", kind)
        for name, struct in NOTIFICATIONS.items()
        for kind in getattr(struct, "__args__", (struct,))
    )


def _section(name: str, struct: type[msgspec.Struct]) -> str:
    fields = msgspec.structs.fields(struct)
    if not fields:
        return f"#### `{name}`\n\nNo parameters.\n"
    rows = [(f"`{each.encode_name}`", takes(each), default_of(each)) for each in fields]
    return f"#### `{name}`\n\n{table(('field', 'takes', 'default'), rows)}"
