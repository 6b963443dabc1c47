"""The list of keys, in the order in which a user needs them."""

from __future__ import annotations

from typing import cast

from rich.table import Column, Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.events import Key
from textual.widgets import Static

from localspec.tui.dialog import Application, Dialog

KEYS = {
    "Enter": "send",
    "Ctrl-J": "a new line (Shift-Enter in some windows)",
    "Esc": "stop the answer; leave an edit or a list",
    "Ctrl-C": "copy the selection; else stop, or clear",
    "Ctrl-O": "models, here and to download",
    "Ctrl-S Ctrl-N": "earlier chats; a new one",
    "Ctrl-Q Ctrl-D": "quit; Ctrl-D only where nothing is typed",
    "/ @ Ctrl-P": "a command; a file; search the commands",
    "Tab Up Down": "complete; earlier inputs; later ones",
    "Ctrl-_ Ctrl-Y": "undo; redo",
    "Ctrl-R Ctrl-G": "answer again; edit the last question",
    "F2": "settings, such as the temperature",
    "Ctrl-T": "colour each token by its source",
    "PgUp PgDn": "scroll; Ctrl-Home, Ctrl-End: to the ends",
    "Alt-Up": "messages: Up, k, Down, j choose one, and",
    "e r f c o": "edit, answer again, fork, copy, open it",
    "Ctrl-Z": "suspend; fg in the shell continues",
    "F1": "this list",
}


class Help(Dialog[None]):
    """The list of keys; what is typed ends it, and goes into the prompt."""

    BINDINGS = [Binding("escape,f1,enter", "dismiss", "Close", show=False)]
    DEFAULT_CSS = """
    Help { align: center middle; }
    Help > VerticalScroll {
        width: 60; max-width: 100%; height: auto; max-height: 100%; padding: 0 1;
        border: round $border; background: $surface; scrollbar-size-vertical: 1;
    }
    """

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = "Keys"
            table = Table.grid(Column(overflow="fold"), Column(overflow="fold"), padding=(0, 2))
            for keys, meaning in KEYS.items():
                table.add_row(Text(keys, "bold"), meaning)
            yield Static(table)

    def on_key(self, event: Key) -> None:
        """Pass a typed character to the prompt."""
        if event.is_printable:
            self.dismiss()
            cast(Application, self.app).chat_screen.type(event)
