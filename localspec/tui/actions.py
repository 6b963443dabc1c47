"""The actions of a chat that commands use; its screen implements them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, Protocol, TypeVar

from textual.app import App

from localspec.tui.attach import Files
from localspec.tui.chat import Chat
from localspec.tui.conversation import Answer, Question
from localspec.tui.dialogs.dialog import Dialog

T = TypeVar("T")


class ChatActions(Protocol):
    """The screen of one chat."""

    chat: Chat
    settled: asyncio.Event
    files: Files

    @property
    def app(self) -> App[object]: ...
    def show(self, chat: Chat) -> None: ...
    def begin_edit(self, question: Question) -> None: ...
    def attach(self, mention: str) -> None: ...
    def colour(self) -> None: ...
    def details(self, answer: Answer) -> None: ...
    def help(self) -> None: ...
    async def answer(self, chat: Chat, turn: Coroutine[Any, Any, None]) -> None: ...
    async def busy(self, label: str, work: Awaitable[T]) -> T: ...
    async def ask(self, dialog: Dialog[T] | Coroutine[Any, Any, Dialog[T]]) -> T | None: ...
    def notify(self, message: str, *, title: str = "", timeout: float | None = None) -> None: ...
