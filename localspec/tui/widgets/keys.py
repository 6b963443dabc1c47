"""The footer with the keys that work now."""

from __future__ import annotations

from collections.abc import Iterator

from textual.app import ComposeResult
from textual.events import Resize
from textual.widget import Widget
from textual.widgets import Footer
from textual.widgets._footer import FooterKey


class Keys(Footer):
    """As many keys as fit, those of the focused widget first, and at the end the palette's."""

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
    """The columns of a key, with the gaps inside and after it."""
    return len(key.key_display) + len(key.description) + 2 if isinstance(key, FooterKey) else 0
