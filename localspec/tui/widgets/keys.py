"""The line of keys at the foot of the screen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from textual.app import ComposeResult
from textual.widgets import Footer


class Keys(Footer):
    """The keys that matter most now: as many as have room, each in full."""

    def compose(self) -> ComposeResult:
        room = self.app.size.width + 1  # the last one needs no blank behind it
        for key in cast(Iterable[Any], super().compose()):
            width = len(f"{key.key_display} {key.description} ")
            if width <= room:
                room -= width
                yield key

    def on_resize(self) -> None:
        self.refresh(recompose=True)
