"""The stored chats: search by text, open, delete."""

from __future__ import annotations

import time
from functools import partial

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from localspec.errors import LocalspecError
from localspec.protocol.messages import SessionSummary
from localspec.tui.dialog import Confirm, Dialog
from localspec.tui.facts import Touched
from localspec.tui.screen import ChatScreen
from localspec.wording import count_noun, describe_time, one_line

MOST = 1000
"""most chats that the daemon lists at once; a search finds the others"""
LONGEST_QUERY = 1000
"""a limit of the daemon"""


class SessionsScreen(Dialog[str | None]):
    """Ends with the session to open, or with None."""

    BINDINGS = [
        Binding("escape", "dismiss", "Leave", show=False),
        Binding("up", "move('cursor_up')", "Up", show=False),
        Binding("down", "move('cursor_down')", "Down", show=False),
        Binding("pageup", "move('page_up')", "Page up", show=False),
        Binding("pagedown", "move('page_down')", "Page down", show=False),
        # With priority: the search would delete a character with it.
        Binding("ctrl+d", "delete", "Delete the chat", show=False, priority=True),
    ]

    DEFAULT_CSS = """
    SessionsScreen { align: center middle; }
    SessionsScreen > Vertical {
        width: 90%; max-width: 110; height: 80%; background: $surface; padding: 0 1;
        border: round $border; border-title-color: $text; border-subtitle-color: $text-muted;
    }
    SessionsScreen OptionList {
        height: 1fr; border: none; padding: 0; background: $surface;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    def __init__(self, chat_screen: ChatScreen, query: str) -> None:
        super().__init__()
        self._chat_screen, self._first_query = chat_screen, query

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            yield Input(
                self._first_query,
                placeholder="Type to search",
                max_length=LONGEST_QUERY,
                compact=True,
                select_on_focus=False,
            )
            yield OptionList(markup=False)
        frame.border_title = "Chats"
        frame.border_subtitle = "Enter opens, Ctrl-D deletes, Esc leaves"

    def on_mount(self) -> None:
        self._list.can_focus = False
        self._read()

    @property
    def _list(self) -> OptionList:
        return self.query_one(OptionList)

    def on_input_changed(self) -> None:
        self._read()

    def on_touched(self, fact: Touched) -> None:
        self._read()

    def on_input_submitted(self) -> None:
        self._read(opening=True)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id)

    def action_move(self, how: str) -> None:
        getattr(self._list, f"action_{how}")()

    def action_delete(self) -> None:
        option = self._list.highlighted_option
        if option is not None and option.id is not None:
            # By the chat's screen, so that it is done even if this dialog is left meanwhile.
            self._chat_screen.attempt(self._delete(option.id, str(option.prompt).strip("● ")))

    async def _delete(self, session: str, row: str) -> None:
        question = Confirm(f"Delete “{one_line(row)}”? This cannot be undone.", "Delete")
        if await self.app.push_screen_wait(question):
            await self._chat_screen.application.drop(session)
            if self.is_attached:
                self._read()

    def _read(self, *, opening: bool = False) -> None:
        """List the chats with the typed text, and open the highlighted one if ``opening``."""
        self.run_worker(partial(self._search, opening), group="search", exclusive=True)  # type: ignore[arg-type]

    async def _search(self, opening: bool) -> None:
        query, link = self.query_one(Input).value.strip(), self._chat_screen.application.link
        try:
            found = await link.ask(lambda client: client.sessions(query, limit=MOST))
        except LocalspecError as error:
            self._chat_screen.show_error(error)
            return
        if not self.query(OptionList):  # the dialog has ended meanwhile
            return
        option, now, current = self._list.highlighted_option, time.time(), self._chat_screen.chat.session
        before, place = (option and option.id), (option and self._list.highlighted) or 0
        chats = sorted(found, key=lambda each: each.once)
        self._list.set_options(
            Option(row(each, now, each.session == current), each.session) for each in chats
        )
        ids = [each.session for each in chats]
        if ids:
            self._list.highlighted = ids.index(before) if before in ids else min(place, len(ids) - 1)
        else:
            self._list.add_option(
                Option("No chat matches." if query else "There are no chats yet.", disabled=True)
            )
        if opening:
            self._list.action_select()


def row(session: SessionSummary, now: float, is_current: bool) -> Text:
    """A chat as a line: the time of its last change, the number of its messages, and its title."""
    text = Text("● " if is_current else "  ")
    what = "localspec run" if session.once else count_noun(session.messages, "message")
    text.append(f"{describe_time(session.updated, now):<11} {what:>13}  ", style="dim")
    text.append(one_line(session.title) or "without a title")
    return text
