"""``localspec chat``: the application, its chats and its connection to the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from typing import Any
from weakref import WeakSet

from msgspec.structs import replace
from rich.text import Text
from textual.app import App, InvalidThemeError, SystemCommand
from textual.binding import Binding
from textual.message import Message
from textual.screen import Screen
from textual.worker import WorkerFailed

from localspec.agent.loop import CallRun, Consent
from localspec.agent.server import ToolServer
from localspec.errors import LocalspecError
from localspec.home import state_dir, write_private
from localspec.hub.default import LARGER, LATER, QUESTION, MissingModel
from localspec.protocol.options import Options
from localspec.tui import (
    commands,  # noqa: F401, importing it registers all of them
    defects,
    export,
    facts,
)
from localspec.tui.chat import Chat, Tools
from localspec.tui.command import COMMANDS, name_key
from localspec.tui.dialog import Confirm, Dialog, Permission
from localspec.tui.link import DaemonLink
from localspec.tui.screen import ChatScreen
from localspec.wording import printable

LEAVING_S = 2.0
"""longest clean-up when the user leaves: the daemon may be busy"""
TYPING_S = 0.1
"""seconds between two looks at whether a message is being typed"""
LONGEST_TITLE = 60
"""characters of a title in a notice"""
THEME_FILE = "chat-theme"
"""in the state's folder"""


class ChatApp(App[None]):
    """A chat in the terminal; :attr:`link` is its only connection to the daemon. ``options`` are those of new
    chats, as resolved by ``settle``, which may read the disk, and is called after the first frame is painted.
    ``missing`` returns the default model if it is to be offered. ``session`` is the id of the session to
    continue, ``servers`` are the programs whose tools it may call."""

    TITLE = "localspec"
    BINDINGS = [
        Binding("ctrl+p", "command_palette", "Commands", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", "Suspend; fg in the shell continues", show=False, priority=True),
    ]
    CSS = """
    Toast { width: 100%; max-width: 100%; margin: 0; padding: 0 1; }
    ChatScreen ToastRack { layer: default; dock: none; margin: 0; max-height: 25%; overflow-y: auto; }
    """

    def __init__(
        self,
        options: Options,
        *,
        settle: Callable[[Options], Options] = lambda options: options,
        missing: Callable[[], MissingModel | None] = lambda: None,
        session: str | None = None,
        private: bool = False,
        servers: Sequence[ToolServer] = (),
    ) -> None:
        super().__init__()
        self.options = options
        self._settle, self._missing = settle, missing
        self.link = DaemonLink(self._receive)
        self._first, self._servers = session, [*servers]
        self.tools, self._asking = Tools(self._consent), asyncio.Lock()
        self._chats = WeakSet[Chat]()
        """those that are shown, or have a running answer, which holds them"""
        for theme in [theme for theme in self.available_themes.values() if theme.ansi]:
            self.unregister_theme(theme.name)  # the painter needs colour values, not the terminal's numbers
        if "TEXTUAL_THEME" not in os.environ:
            with contextlib.suppress(LocalspecError, OSError, ValueError, InvalidThemeError):
                self.theme = (state_dir() / THEME_FILE).read_text("utf-8").strip()
        self.chat_screen = ChatScreen(self.new_chat(private=private))

    def watch_theme(self, theme: str) -> None:
        with contextlib.suppress(LocalspecError, OSError):
            write_private(state_dir() / THEME_FILE, f"{theme}\n")

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        for each in COMMANDS.values():
            needs = each.argument and not each.argument.startswith("[")
            act = self.chat_screen.begin if needs else self.chat_screen.action_run
            text = f"/{each.name} " if needs else each.name
            yield SystemCommand(f"/{each.name}  {name_key(each.key)}".rstrip(), each.help, partial(act, text))

    def get_key_display(self, binding: Binding) -> str:
        return name_key(binding.key)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return None for the palette's key while a dialog is open, which greys it out."""
        return None if action == "command_palette" and isinstance(self.screen, Dialog) else True

    def get_default_screen(self) -> ChatScreen:
        return self.chat_screen

    def on_mount(self) -> None:
        for each in (signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):  # leave as by Ctrl-Q
            asyncio.get_running_loop().add_signal_handler(each, self.exit, None, 128 + each)
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        self.call_after_refresh(self._start)  # the user can type then

    async def on_unmount(self) -> None:
        if self.chat_screen.chat.private and self.link.connected:
            with contextlib.suppress(LocalspecError, TimeoutError):  # the daemon's end deletes it, too
                async with asyncio.timeout(LEAVING_S):
                    await self.chat_screen.chat.discard()
        await self.tools.box.close()
        await self.link.close()

    def action_help_quit(self) -> None:
        """Ctrl-C without a selection: stop the answer, or clear the prompt, or show the key that leaves."""
        if self.chat_screen.chat.answering:
            self.chat_screen.chat.stop()
        elif not self.chat_screen.prompt.clear():
            self.chat_screen.notify("Ctrl-Q leaves the chat.", timeout=3)

    def copy_to_clipboard(self, text: str) -> None:
        super().copy_to_clipboard(text)
        self.run_worker(asyncio.to_thread(export.copy, text))

    def new_chat(self, *, private: bool = False) -> Chat:
        chat = Chat(self.link, self._receive_of, self.options, self.tools, private=private)
        self._chats.add(chat)
        return chat

    async def stored_chat(self, session: str) -> Chat:
        """Return the chat of a session; one with a running answer as far as that has come. Raises
        :class:`~localspec.errors.SessionNotFound`, and the errors of a lost daemon."""
        chat = self.known_chat(session) or self.new_chat()
        if not chat.answering:
            await chat.restore(session)
        return chat

    def known_chat(self, session: str) -> Chat | None:
        """The chat of a session that is shown or has a running answer here."""
        return next((chat for chat in self._chats if chat.session == session), None)

    async def _consent(self, made: CallRun) -> Consent:
        async with self._asking:
            return await self.push_screen_wait(Permission(made.begun, self.chat_screen.prompt)) or "no"

    async def drop(self, session: str) -> None:
        """Delete a session, also one that is shown or has a running answer."""
        chat = self.known_chat(session) or self.new_chat()
        chat.session = session
        await self.discard(chat)

    async def discard(self, chat: Chat) -> None:
        """Delete a chat; if it is shown, a new one takes its place."""
        if is_shown := chat is self.chat_screen.chat:
            self.chat_screen.show(self.new_chat())
        await chat.discard()
        if is_shown:
            await self.chat_screen.chat.load()

    def _handle_exception(self, error: Exception) -> None:
        """End the chat at an unhandled error; prints the error and the text in the prompt."""
        if isinstance(error, WorkerFailed):
            error = error.error  # type: ignore[assignment]
        report = defects.report(error)
        screen = self.chat_screen
        typed = [*filter(None, (screen.prompt.waiting, screen.prompt.text))] if screen.is_mounted else []
        lines = [f"localspec: {report.message}. {report.remedy}"]
        lines += ["You had typed:", *typed] if typed else []
        setattr(error, "__rich__", lambda: Text(printable("\n".join(lines))))  # noqa: B010, printed instead of a traceback
        super()._handle_exception(error)

    def _start(self) -> None:
        self.run_worker(asyncio.to_thread(import_module, "localspec.tui.markdown"))  # for the first answer
        self.chat_screen.attempt(self._begin())

    async def _begin(self) -> None:
        """Connect to the daemon and load the model, while the user begins to type."""
        try:
            self.options = await asyncio.to_thread(self._settle, self.options)
            self.chat_screen.chat.options = self.options
            if self._first is not None:
                self.chat_screen.show(await self.stored_chat(self._first))
            try:
                await self.chat_screen.open_tools(self._servers)
            except LocalspecError as error:
                self.chat_screen.show_error(error)
            if (missing := await asyncio.to_thread(self._missing)) and not missing.refused:
                await self._offer(missing)
        finally:
            self.chat_screen.settled.set()
        await self.chat_screen.chat.load()

    async def _offer(self, model: MissingModel) -> None:
        """Offer the default model, and download it, while a message waits; else the bundled model answers."""
        screen = self.chat_screen
        if not model.agreed:
            while screen.prompt.text:  # its letters would answer the question
                await asyncio.sleep(TYPING_S)
            agrees = await screen.ask(Confirm(QUESTION, "Download", "primary"))
            if agrees is False:
                await asyncio.to_thread(model.decline)
                screen.notify(LATER)
            if not agrees:
                return
        if await screen.download(model):
            screen.notify(LARGER)

    def _receive_of(self, chat: Chat, fact: Message) -> None:
        if isinstance(fact, facts.Configured):
            self.options = replace(self.options, **fact.changed)  # new chats get the same options
            return
        if chat is self.chat_screen.chat:
            self._receive(fact)
        elif isinstance(fact, facts.Grown) and fact.ended and chat.answer is not None and not chat.answering:
            title = textwrap.shorten(chat.title or chat.said[0].text, LONGEST_TITLE, placeholder="…")
            if (error := chat.answer.error) is None:
                self.chat_screen.notify("The answer is complete.", title=title)
            else:
                self.chat_screen.show_error(LocalspecError(f"{title}: {error.message}", error.remedy))

    async def action_quit(self) -> None:
        """Ctrl-Q: run the command, which asks before it leaves a private chat."""
        self.chat_screen.action_run("quit")

    def _receive(self, fact: Message) -> None:
        if isinstance(fact, facts.Touched):
            for screen in self.screen_stack:  # the list of chats needs it, too
                screen.post_message(facts.Touched(fact.event))
        else:
            self.chat_screen.post_message(fact)
