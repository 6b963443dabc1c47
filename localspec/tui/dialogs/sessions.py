"""The stored chats: search by text, open, rename, fork, export, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, cast

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.events import Click, DescendantFocus
from textual.widgets import Input, Label, OptionList

from localspec.errors import LocalspecError
from localspec.protocol.sessions import SessionSummary
from localspec.tui.application import Application
from localspec.tui.dialogs.confirm import deletion
from localspec.tui.dialogs.dialog import Dialog
from localspec.tui.dialogs.session_list import SessionList
from localspec.tui.export import Record, Wish
from localspec.tui.facts import Touched
from localspec.wording import one_line

PAGE = 100
"""chats of one request"""
MOST = 1000
"""most chats that the daemon lists at once"""
LONGEST_QUERY = 1000
LONGEST_TITLE = 200
"""limits of the daemon"""
HINTS = {
    "search": "Enter opens the chat, ↓ goes to the list, Esc leaves",
    "title": "Enter renames the chat, Esc keeps its title",
    "list": "Enter open, r rename, d delete, e export, f fork",
}
"""keys by the focused widget"""
Line = partial(Input, compact=True, select_on_focus=False)


class SessionsScreen(Dialog[str | None]):
    """Ends with the session to open, or with None. ``current`` is the one that is shown."""

    BINDINGS = [
        Binding("escape", "leave", "Leave", show=False),
        Binding("down", "list", "To the list", show=False),
    ]

    DEFAULT_CSS = """
    SessionsScreen { align: center middle; }
    SessionsScreen > Vertical {
        width: 90%; max-width: 110; height: 80%; background: $surface; padding: 0 1;
        border: round $border; border-title-color: $text; border-subtitle-color: $text-muted;
    }
    SessionsScreen #title { display: none; }
    SessionsScreen Label { color: $text-muted; display: none; }
    """

    def __init__(self, query: str = "", *, current: str | None = None) -> None:
        super().__init__()
        self._first_query = query
        self._current = current
        self._found: dict[str, SessionSummary] = {}
        self._query = ""
        """the query of ``_found``"""
        self._is_whole = False
        self._is_stale = False
        self._wants_more = False
        self._is_read = asyncio.Event()
        self._is_read.set()
        self._renamed = ""

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            yield Line(self._first_query, placeholder="Type to search", max_length=LONGEST_QUERY, id="search")
            yield Line(max_length=LONGEST_TITLE, id="title")
            yield SessionList(id="list")
            yield Label()
        frame.border_title = "Chats"

    def on_mount(self) -> None:
        self._search.focus()
        self._read_anew()

    @property
    def _app(self) -> Application:
        return cast(Application, self.app)

    @property
    def _search(self) -> Input:
        return self.query_one("#search", Input)

    @property
    def _title(self) -> Input:
        return self.query_one("#title", Input)

    @property
    def _list(self) -> SessionList:
        return self.query_one(SessionList)

    @property
    def _is_here(self) -> bool:
        """True if the dialog is still open; its widgets are removed one by one when it ends."""
        return self.is_attached and bool(self.query("#list")) and bool(self.query("Label"))

    # Actions of the user.

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input is self._search:
            self._read_anew()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input is self._title:
            self._rename()
        else:
            self.run_worker(self._open_first())

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id)

    def on_session_list_asked(self, wish: SessionList.Asked) -> None:
        if (session := self._found.get(wish.session)) is None:
            return  # deleted by another program since the key was pressed
        match wish.what:
            case "rename":
                self._begin_rename(session)
            case "delete":
                self._attempt(self._delete(session))
            case "export":
                self._attempt(self._export(wish.session))
            case "fork":
                self._attempt(self._fork(wish.session))

    def on_session_list_top_left(self) -> None:
        self._search.focus()

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        self.query_one(Vertical).border_subtitle = HINTS.get(event.widget.id or "", "")

    def on_click(self, event: Click) -> None:
        if event.widget is self:
            self.dismiss(None)

    def action_list(self) -> None:
        """Focus the list."""
        if not self._title.display:
            self._list.focus()

    def action_leave(self) -> None:
        """End a renaming, or else the dialog."""
        if self._title.display:
            self._end_rename()
        else:
            self.dismiss(None)

    def _begin_rename(self, session: SessionSummary) -> None:
        self._renamed = session.session
        self._search.display, self._title.display = False, True
        self._title.value = one_line(session.title)
        self._title.focus()

    def _end_rename(self) -> None:
        self._search.display, self._title.display = True, False
        self._list.focus()

    def _rename(self) -> None:
        session, title = self._renamed, self._title.value
        self._end_rename()
        if title.strip():
            self._attempt(self._changed(self._app.rename(session, title)))

    async def _open_first(self) -> None:
        """Open the highlighted chat, after the search for the typed text has ended."""
        await self._is_read.wait()
        if self._is_here:
            self._list.action_select()

    async def _delete(self, session: SessionSummary) -> None:
        if await self.app.push_screen_wait(deletion(session.title)):
            await self._changed(self._app.drop(session.session))

    async def _changed(self, change: Coroutine[Any, Any, None]) -> None:
        await change
        if self._is_here:
            self._read_anew()

    async def _export(self, session: str) -> None:
        content = await self._app.link.ask(lambda client: client.session(session))
        path = await asyncio.to_thread(Wish("md", "").write, Record.stored(content))
        self._app.chat_screen.notify(str(path), title="Written to")

    async def _fork(self, session: str) -> None:
        copy = await self._app.link.ask(lambda client: client.fork_session(session))
        if self._is_here:
            self.dismiss(copy)

    def _attempt(self, work: Coroutine[Any, Any, None]) -> None:
        # By the chat's screen, so that it is done even if this dialog is left meanwhile.
        self._app.chat_screen.attempt(work)

    # The list.

    def on_touched(self, fact: Touched) -> None:
        self._read_anew()

    def on_session_list_end_seen(self) -> None:
        if not self._is_whole:
            self._wants_more = True
            self._begin_to_read()

    def _read_anew(self) -> None:
        """Read the list again; calls during a request are merged into one."""
        self._is_stale = True
        self._begin_to_read()

    def _begin_to_read(self) -> None:
        if self._is_read.is_set():
            self._is_read.clear()
            self.run_worker(self._read())

    async def _read(self) -> None:
        try:
            while self._is_here and (self._is_stale or self._wants_more):
                await self._read_page()
        except LocalspecError as error:
            self._is_stale = self._wants_more = False
            self._app.chat_screen.show_error(error)
        finally:
            self._is_read.set()

    async def _read_page(self) -> None:
        anew, query = self._is_stale, self._search.value.strip()
        is_same = query == self._query
        known = self._found if is_same else {}
        limit = min(max(PAGE, len(known)), MOST) if anew else PAGE
        self._is_stale = self._wants_more = False
        found = await self._app.link.ask(
            lambda client: client.sessions(query, limit=limit, offset=0 if anew else len(known))
        )
        if not self._is_here:
            return
        self._found = {**({} if anew else known), **{each.session: each for each in found}}
        self._query, self._is_whole = query, len(found) < limit
        self._list.show(self._found.values(), self._current, from_top=not is_same)
        nothing = self.query_one(Label)
        nothing.update("No chat matches." if query else "There are no chats yet.")
        nothing.display = not self._found
