"""A list of stored chats, with keys for actions on one."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from rich.text import Text
from textual.binding import Binding
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from localspec.protocol.sessions import SessionSummary
from localspec.wording import counted, moment, one_line

NEAR_END = 3
"""rows before the last one at which more are requested"""


class SessionList(OptionList):
    """One chat a line: the time of its last change, the number of its messages, and its title."""

    BINDINGS = [
        Binding("enter", "select", "Open"),
        Binding("r,f2", "ask('rename')", "Rename"),
        Binding("d,delete", "ask('delete')", "Delete"),
        Binding("e", "ask('export')", "Export"),
        Binding("f", "ask('fork')", "Fork"),
    ]

    DEFAULT_CSS = """
    SessionList {
        height: 1fr; border: none; padding: 0; background: $surface;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    SessionList:focus { border: none; background-tint: $foreground 0%; }
    """

    @dataclass
    class Asked(Message):
        """The user requests the action ``what`` on a chat."""

        what: str
        session: str

    class EndSeen(Message):
        """The last rows are on the screen, or nearly."""

    class TopLeft(Message):
        """The user moves up from the first row."""

    def show(self, found: Iterable[SessionSummary], current: str | None, *, from_top: bool) -> None:
        """Show these chats; the highlight stays on its chat, or on its row, or moves to the top."""
        chosen, place = (None, 0) if from_top else (self.chosen, self.highlighted or 0)
        now = time.time()
        self.set_options(Option(row(each, now, each.session == current), id=each.session) for each in found)
        ids = [option.id for option in self.options]
        if ids:
            self.highlighted = ids.index(chosen) if chosen in ids else min(place, len(ids) - 1)

    @property
    def chosen(self) -> str | None:
        """The id of the highlighted session."""
        option = self.highlighted_option
        return None if option is None else option.id

    def watch_highlighted(self, highlighted: int | None) -> None:
        super().watch_highlighted(highlighted)
        if highlighted is not None and highlighted >= self.option_count - NEAR_END:
            self.post_message(self.EndSeen())

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if new_value >= self.max_scroll_y > 0:
            self.post_message(self.EndSeen())

    def action_ask(self, what: str) -> None:
        """Request an action on the highlighted chat."""
        if (session := self.chosen) is not None:
            self.post_message(self.Asked(what, session))

    def action_cursor_up(self) -> None:
        """Move up a row; from the first one, out of the list."""
        if self.highlighted:
            super().action_cursor_up()
        else:
            self.post_message(self.TopLeft())


def row(session: SessionSummary, now: float, is_current: bool) -> Text:
    """A chat as a line."""
    text = Text("● " if is_current else "  ")
    facts = f"{moment(session.updated, now):<11} {counted(session.messages, 'message'):>12}  "
    text.append(facts, style="dim")
    text.append(one_line(session.title) or "without a title")
    return text
