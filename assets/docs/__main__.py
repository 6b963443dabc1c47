"""Write the generated parts of the documentation anew: ``python -m assets.docs``."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from assets.docs import clients, commands, conversations, failures, fields, messages, methods, settings
from assets.docs.parts import DOCS, filled


class Part(NamedTuple):
    """A part ``name`` of ``docs/PAGE``, as ``body`` returns it."""

    page: str
    name: str
    body: Callable[[], str]


PARTS = (
    Part("settings.md", "settings", settings.body),
    Part("cli.md", "commands", commands.body),
    Part("troubleshooting.md", "errors", failures.body),
    Part("messages.md", "messages", messages.body),
    Part("wire.md", "methods", methods.body),
    Part("wire.md", "notifications", methods.notifications),
    Part("transcripts.md", "conversations", conversations.body),
    Part("http.md", "fields", fields.body),
    Part("editors.md", "clients", clients.body),
)


def current(part: Part) -> str:
    """Return the page with this part as it is to be."""
    return filled((DOCS / part.page).read_text("utf-8"), part.name, part.body())


if __name__ == "__main__":
    for part in PARTS:
        (DOCS / part.page).write_text(current(part), "utf-8")
