"""The keys that do something now, at the foot of the screen."""

from __future__ import annotations

from collections.abc import Iterator

from textual.app import ComposeResult
from textual.events import Resize
from textual.widget import Widget
from textual.widgets import Footer
from textual.widgets._footer import FooterKey


class Keys(Footer):
    """As many as fit, those of what is focused first, and at the end the palette's, which knows all."""

    def __init__(self) -> None:
        super().__init__(compact=True)

    def compose(self) -> ComposeResult:
        return self._fitting(list(super().compose()))

    def on_resize(self, event: Resize) -> None:
        self.refresh(recompose=True)

    def _fitting(self, keys: list[Widget]) -> Iterator[Widget]:
        palette = keys[-1:]
        room = self.app.size.width - sum(map(_columns, palette))
        for key in keys[:-1]:
            room -= _columns(key)
            if room < 0:
                break
            yield key
        yield from palette


def _columns(key: Widget) -> int:
    """What it takes, with the gaps within and after."""
    return len(key.key_display) + len(key.description) + 2 if isinstance(key, FooterKey) else 0
