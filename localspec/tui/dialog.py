"""Dialogs in front of the chat: the base class, the confirmation, and what they need of the application."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.events import Click
from textual.screen import ModalScreen, ScreenResultType
from textual.widgets import Button, Static
from textual.widgets.button import ButtonVariant

from localspec.errors import LocalspecError
from localspec.tui.chat import Chat
from localspec.tui.link import Link
from localspec.wording import one_line


class Reporter(Protocol):
    """The screen behind a dialog, which runs work and shows its errors."""

    def attempt(self, work: Coroutine[Any, Any, None], *, otherwise: str = "") -> None: ...
    def show_error(self, error: LocalspecError) -> None: ...


class Application(Protocol):
    """Keeps the chats; see :class:`~localspec.tui.app.ChatApp`."""

    @property
    def chat_screen(self) -> Reporter: ...
    @property
    def link(self) -> Link: ...
    def new_chat(self, *, private: bool = False) -> Chat: ...
    async def stored_chat(self, session: str) -> Chat: ...
    async def drop(self, session: str) -> None: ...
    async def discard(self, chat: Chat) -> None: ...


class Dialog(ModalScreen[ScreenResultType]):
    """Ends with a result; a click beside it ends it without one. A second attempt to end it, such as a key
    pressed twice, has no effect."""

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """End the dialog, if it is the topmost screen."""
        return super().dismiss(result) if self.is_active else AwaitComplete()

    def on_click(self, event: Click) -> None:
        if event.widget is self:
            self.dismiss()


class Confirm(Dialog[bool]):
    """A confirmation before an action that cannot be undone, or takes long: shows ``question``; ends with
    True if the user chooses ``deed``."""

    BINDINGS = [
        Binding("escape,n", "answer(False)", "No"),
        Binding("y", "answer(True)", "Yes"),
        Binding("left,up", "app.focus_previous", "Previous", show=False),
        Binding("right,down", "app.focus_next", "Next", show=False),
    ]

    AUTO_FOCUS = "#no"  # a key may already be in the queue
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

    def __init__(self, question: str, deed: str, variant: ButtonVariant = "error") -> None:
        super().__init__()
        self._variant = variant
        self._question = question
        self._deed = deed

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._question, markup=False)
            with Horizontal():
                yield Button(f"{self._deed} (y)", variant=self._variant, id="yes", compact=True)
                yield Button("Cancel (esc)", id="no", compact=True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")

    def action_answer(self, yes: bool) -> None:
        """End with this answer."""
        self.dismiss(yes)


def deletion(title: str) -> Confirm:
    """The confirmation before a chat is deleted."""
    what = f"“{one_line(title)}”" if title else "this chat"
    return Confirm(f"Delete {what}? This cannot be undone.", "Delete")
