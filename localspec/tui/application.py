"""The application's interface for commands and dialogs: its chats, and its connection to the daemon."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

from localspec.errors import LocalspecError
from localspec.tui.chat import Chat
from localspec.tui.link import Link


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
    async def rename(self, session: str, title: str) -> None: ...
    async def drop(self, session: str) -> None: ...
    async def discard(self, chat: Chat) -> None: ...
