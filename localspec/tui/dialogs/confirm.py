"""A question before something that cannot be undone."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.widgets import Button, Static

from localspec.tui.dialogs.dialog import Dialog
from localspec.wording import one_line


class Confirm(Dialog[bool]):
    """Asks ``question``; True once the person has chosen ``deed``."""

    BINDINGS = [
        Binding("escape,n", "answer(False)", "No"),
        Binding("y", "answer(True)", "Yes"),
        Binding("left,up", "app.focus_previous", "Previous", show=False),
        Binding("right,down", "app.focus_next", "Next", show=False),
    ]

    AUTO_FOCUS = "#no"  # from the first moment on: a key may be waiting
    DEFAULT_CSS = """
    Confirm { align: center middle; }
    Confirm > Vertical {
        width: 90%; max-width: 72; height: auto; padding: 1 2;
        border: round $border; background: $surface;
    }
    Confirm Static { width: 100%; margin-bottom: 1; }
    Confirm Horizontal { height: auto; }
    Confirm Button { margin-right: 2; }
    """

    def __init__(self, question: str, deed: str) -> None:
        super().__init__()
        self._question = question
        self._deed = deed

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._question, markup=False)
            with Horizontal():
                yield Button(f"{self._deed} (y)", variant="error", id="yes", compact=True)
                yield Button("Cancel (esc)", id="no", compact=True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")

    def action_answer(self, yes: bool) -> None:
        """Yes or no."""
        self.dismiss(yes)


def deletion(title: str) -> Confirm:
    """The question before a chat of this title is deleted."""
    what = f"“{one_line(title)}”" if title else "this chat"
    return Confirm(f"Delete {what}? It cannot be brought back.", "Delete")
