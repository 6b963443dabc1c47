"""The base class of dialogs: a screen in front of the chat that ends once."""

from __future__ import annotations

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen, ScreenResultType


class Dialog(ModalScreen[ScreenResultType]):
    """Ends with a result. A second attempt to end it, such as a key pressed twice, has no effect."""

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """End the dialog, if it is the topmost screen."""
        return super().dismiss(result) if self.is_active else AwaitComplete()
