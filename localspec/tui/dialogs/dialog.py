"""What every dialog is: a screen in front of the chat that ends once."""

from __future__ import annotations

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen, ScreenResultType


class Dialog(ModalScreen[ScreenResultType]):
    """Ends with a result. What would end it again, such as a key that was pressed twice, does nothing."""

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """End it, if it is the one that is looked at."""
        return super().dismiss(result) if self.is_active else AwaitComplete()
