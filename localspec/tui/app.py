"""``localspec chat``: the application, its themes and its way to the daemon."""

from __future__ import annotations

from textual.app import App
from textual.message import Message

from localspec.errors import LocalspecError
from localspec.protocol.options import Options
from localspec.tui import facts
from localspec.tui.chat import Chat
from localspec.tui.link import Link
from localspec.tui.screens.chat import ChatScreen


class ChatApp(App[None]):
    """A chat in the terminal; :attr:`link` is its one way to the daemon."""

    TITLE = "localspec"

    def __init__(self, options: Options, *, session: str | None = None, private: bool = False) -> None:
        super().__init__()
        self.link = Link(self._hear)
        self.chat = Chat(self.link, self._hear, options)
        self.chat.private = private
        self._session = session

    def on_mount(self) -> None:
        self.push_screen(ChatScreen(self.chat))
        self.run_worker(self._begin())

    async def on_unmount(self) -> None:
        await self.link.close()

    async def _begin(self) -> None:
        """Meet the daemon while the person begins to type."""
        try:
            if self._session is not None:
                await self.chat.show(self._session)
            await self.chat.load()
        except LocalspecError as error:
            self._hear(facts.Failed(error))

    def _hear(self, fact: Message) -> None:
        """Something happened: the screen that shows the chat is told."""
        for screen in self.screen_stack:
            if isinstance(screen, ChatScreen):
                screen.post_message(fact)
