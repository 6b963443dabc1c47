"""``localspec chat``: the application, its chats and its way to the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import textwrap
from collections.abc import Callable
from importlib import import_module

from msgspec.structs import replace
from rich.text import Text
from textual.app import App
from textual.binding import Binding
from textual.message import Message
from textual.worker import WorkerFailed

from localspec.errors import LocalspecError
from localspec.protocol.options import Options
from localspec.tui import clipboard, defects, facts, themes
from localspec.tui.chat import Chat
from localspec.tui.dialogs.dialog import Dialog
from localspec.tui.link import Link
from localspec.tui.palette import CommandHits, ThemeHits
from localspec.tui.screens.chat import ERROR_SHOWN_S, ChatScreen
from localspec.wording import printable

LEAVING_S = 2.0
"""for what is done when the person leaves; the daemon may be busy"""
MOST_RECENT = 20
"""chats that are kept as they were seen"""
LONGEST_TITLE = 60
"""characters of a title in a notice"""


class ChatApp(App[None]):
    """A chat in the terminal; :attr:`link` is its one way to the daemon.

    ``options`` are those of new chats, once ``settle`` has said what they mean here; it may read the disk,
    and is called when a person can type already. ``session`` is the id of the one to go on with.
    """

    TITLE = "localspec"
    COMMANDS = {CommandHits, ThemeHits}
    BINDINGS = [
        Binding("ctrl+p", "command_palette", "Commands", show=False, priority=True, tooltip="Search commands")
    ]
    CSS = """
    ToastRack { margin-bottom: 5; }
    Toast { max-width: 90%; }
    """

    def __init__(
        self,
        options: Options,
        *,
        settle: Callable[[Options], Options] = lambda options: options,
        session: str | None = None,
        private: bool = False,
    ) -> None:
        super().__init__()
        self.options = options
        self._settle = settle
        self.link = Link(self._hear)
        self._first = session
        self._answering: set[Chat] = set()
        """those that are being answered, looked at or not"""
        self._recent: list[Chat] = []
        """those that were answered last: of their answers more is known than is stored"""
        for theme in [theme for theme in self.available_themes.values() if theme.ansi]:
            self.unregister_theme(theme.name)  # what the terminal's colours are is not known to a painter
        self.theme = themes.kept(self.available_themes) or self.theme
        self.chat_screen = ChatScreen(self.new_chat(private=private))

    def watch_theme(self, before: str, theme: str) -> None:
        """A person chose it."""
        if before != theme:
            themes.keep(theme)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A dialog is answered before anything is searched; the key is seen to do nothing then."""
        return None if action == "command_palette" and isinstance(self.screen, Dialog) else True

    def get_default_screen(self) -> ChatScreen:
        """The chat's screen is the lowest one."""
        return self.chat_screen

    def on_mount(self) -> None:
        for each in (signal.SIGHUP, signal.SIGTERM):  # a terminal that is closed: leave as a person does
            asyncio.get_running_loop().add_signal_handler(each, self.exit, None, 128 + each)
        # The first picture before all else: a person can type then.
        self.call_after_refresh(self._meet)

    async def on_unmount(self) -> None:
        if self.chat_screen.chat.private and self.link.connected:
            with contextlib.suppress(LocalspecError, TimeoutError):  # it ends with the daemon, too
                async with asyncio.timeout(LEAVING_S):
                    await self.chat_screen.chat.discard()
        await self.link.close()

    def action_help_quit(self) -> None:
        """Ctrl-C with nothing to copy: stop the answer, as elsewhere, or tell how to leave."""
        if self.chat_screen.chat.answering:
            self.chat_screen.chat.stop()
        else:
            self.chat_screen.notify("Ctrl+Q leaves the chat.", timeout=3)

    def copy_to_clipboard(self, text: str) -> None:
        """Put a text into the clipboard, as the terminal does it, and as the system does."""
        super().copy_to_clipboard(text)
        self.run_worker(asyncio.to_thread(clipboard.put, text))

    def new_chat(self, *, private: bool = False) -> Chat:
        """A chat in which nothing was said yet."""
        return Chat(self.link, self._hear_of, self.options, private=private)

    async def stored_chat(self, session: str) -> Chat:
        """The chat of a session; if it is being answered, as far as that has come.

        Raises :class:`~localspec.errors.SessionNotFound`, and what a lost daemon raises.
        """
        chat = self.known_chat(session) or self.new_chat()
        if not chat.answering:
            await chat.restore(session)
        return chat

    def known_chat(self, session: str) -> Chat | None:
        """The chat of a session that is looked at or being answered here, or was so a short while ago."""
        known = (self.chat_screen.chat, *self._answering, *self._recent)
        return next((chat for chat in known if chat.session == session), None)

    async def rename(self, session: str, title: str) -> None:
        """Give a session another title."""
        await self.link.ask(lambda client: client.rename_session(session, title))
        if (chat := self.known_chat(session)) is not None:
            chat.title = title

    async def drop(self, session: str) -> None:
        """Delete a session, also one that is being answered, or looked at."""
        chat = self.known_chat(session)
        if chat is None:
            await self.link.ask(lambda client: client.delete_session(session))
        else:
            await self.discard(chat)

    async def discard(self, chat: Chat) -> None:
        """Delete a chat; one that is looked at makes way for a new one."""
        self._answering.discard(chat)
        self._recent = [each for each in self._recent if each is not chat]
        if chat is not self.chat_screen.chat:
            await chat.discard()
            return
        self.chat_screen.show(self.new_chat())
        await chat.discard()
        await self.chat_screen.chat.load()

    def _handle_exception(self, error: Exception) -> None:
        """A defect of ours that nobody has met ends the chat: it is told, and what was typed."""
        if isinstance(error, WorkerFailed):
            error = error.error  # type: ignore[assignment]
        told = defects.told(error)
        typed = self.chat_screen.typed if self.chat_screen.is_mounted else ""
        lines = [f"localspec: {told.message}. {told.remedy}", *(["You had typed:", typed] if typed else [])]
        setattr(error, "__rich__", lambda: Text(printable("\n".join(lines))))  # noqa: B010, told instead of a traceback
        super()._handle_exception(error)

    def _meet(self) -> None:
        self.run_worker(asyncio.to_thread(import_module, "localspec.tui.markdown"))  # for the first answer
        self.run_worker(self._begin)  # type: ignore[arg-type]  # a worker calls what it is given

    async def _begin(self) -> None:
        """Meet the daemon, and have the model loaded, while the person begins to type."""
        try:
            try:
                self.options = await asyncio.to_thread(self._settle, self.options)
                self.chat_screen.chat.options = self.options
                if self._first is not None:
                    self.chat_screen.show(await self.stored_chat(self._first))
            finally:
                self.chat_screen.settled.set()
            await self.chat_screen.chat.load()
        except LocalspecError as error:
            self.chat_screen.tell(error)
        except Exception as error:  # a defect of ours: the chat goes on, and says so
            self.chat_screen.tell(defects.told(error))

    def _hear_of(self, chat: Chat, fact: Message) -> None:
        """Something happened in a chat: it is shown if the chat is."""
        if isinstance(fact, facts.Configured):
            self.options = replace(self.options, **fact.changed)  # new chats are as this one
            return
        if chat.answering:
            self._answering.add(chat)
        else:
            self._answering.discard(chat)
        if isinstance(fact, facts.Ended):
            self._recent = [*(each for each in self._recent if each is not chat), chat][-MOST_RECENT:]
        if chat is self.chat_screen.chat:
            self._hear(fact)
        elif isinstance(fact, facts.Ended) and chat.answer is not None:
            title = textwrap.shorten(chat.title or chat.said[0].text, LONGEST_TITLE, placeholder="…")
            error = chat.answer.error
            if error is None:
                self.chat_screen.notify(f"{title} is answered.")
            else:
                sentence = f"{title}: {error.message}"
                self.chat_screen.notify(error.remedy, title=sentence, severity="error", timeout=ERROR_SHOWN_S)

    async def action_quit(self) -> None:
        """Ctrl-Q does what the command does: a private chat is not left unasked."""
        self.chat_screen.action_run("quit")

    def _hear(self, fact: Message) -> None:
        if isinstance(fact, facts.Touched):
            for screen in self.screen_stack:  # a list of chats is to know it, too
                screen.post_message(facts.Touched(fact.event))
        else:
            self.chat_screen.post_message(fact)
