"""The chat's screen: its widgets, and the handlers of facts and of requests by the user."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.events import DescendantFocus, Key, Paste, Resize
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.widgets import Static

from localspec.errors import DiskFull, EngineBusy, LocalspecError
from localspec.home import here
from localspec.protocol.messages import ModelDescription
from localspec.protocol.sessions import Pairing
from localspec.tui import defects, facts
from localspec.tui.attach import Files, attached
from localspec.tui.chat import Chat
from localspec.tui.commands import messages, sessions
from localspec.tui.commands.command import parse
from localspec.tui.commands.registry import COMMANDS
from localspec.tui.conversation import Answer, Question
from localspec.tui.dialogs.dialog import Dialog
from localspec.tui.dialogs.session_list import SessionList
from localspec.tui.screens.help import HelpScreen
from localspec.tui.widgets.keys import Keys
from localspec.tui.widgets.progress import Progress
from localspec.tui.widgets.prompt import Composer, Prompt
from localspec.tui.widgets.pulse import Pulse
from localspec.tui.widgets.status import Status
from localspec.tui.widgets.transcript import Transcript
from localspec.tui.widgets.welcome import Welcome
from localspec.wording import one_line, printable

ERROR_SHOWN_S = 10
FEWEST_COLUMNS, FEWEST_LINES = 20, 9
"""of a window that shows a part of the conversation and a line of the prompt"""

T = TypeVar("T")


class ChatScreen(Screen[None]):
    """The screen with the conversation, the prompt and the status line."""

    BINDINGS = [
        Binding("f1", "run('help')", "Help"),
        Binding(
            "escape", "leave", "Stop", show=False, tooltip="Stop the answer; leave the messages or an edit"
        ),
        Binding("ctrl+r", "run('regenerate')", "Again"),
        Binding("ctrl+g", "run('edit')", "Edit"),
        Binding("ctrl+t", "run('colours')", "Colours"),
        Binding("ctrl+n", "run('new')", "New", show=False),
        Binding("ctrl+s", "run('sessions')", "Chats"),
        Binding("ctrl+o", "run('model')", "Model"),
        Binding("f2", "run('set')", "Sampling"),
        Binding("alt+up", "app.focus('transcript')", "Messages", show=False, tooltip="Go to the messages"),
        # With priority: the prompt would use them to scroll its few lines.
        Binding("pageup", "look('page_up')", "Page up", show=False, priority=True),
        Binding("pagedown", "look('page_down')", "Page down", show=False, priority=True),
        Binding("ctrl+home", "look('scroll_home')", "The first message", show=False),
        Binding("ctrl+end", "look('scroll_end')", "The last message", show=False),
    ]

    DEFAULT_CSS = """
    ChatScreen { overflow: hidden; }
    ChatScreen > #small { dock: top; width: 100%; height: 100%; display: none; }
    ChatScreen.-small > #small { display: block; }
    """

    def __init__(self, chat: Chat) -> None:
        super().__init__()
        self.chat = chat
        self.settled = asyncio.Event()
        """set once the first chat's options are resolved"""
        self.files = Files(here())
        self._editing: Question | None = None
        self._draft = ""
        """the prompt's text before an edit began"""
        self._asking = False
        self._typing = False
        """True if letters are text, whichever widget has the focus"""
        self._warmed: Chat | None = None
        """the chat whose model was loaded when the user began to type"""
        self._models: Sequence[ModelDescription] = ()

    def compose(self) -> ComposeResult:
        yield Welcome(id="welcome")
        yield Transcript(id="transcript")
        yield Pulse(id="pulse")
        yield Prompt(lambda command, typed: self._aside(command.values(self, typed)), self.files, id="prompt")
        yield Progress(id="progress")
        yield Status(id="status")
        yield Keys()
        yield Static("The window is too small.", id="small")

    def on_resize(self, event: Resize) -> None:
        self.set_class(event.size.width < FEWEST_COLUMNS or event.size.height < FEWEST_LINES, "-small")

    def on_mount(self) -> None:
        for notices in self.query("ToastRack"):
            self.move_child(notices, before=self._prompt)  # where they cover no text
        self._show_said()
        self._prompt.take_focus()

    @property
    def _transcript(self) -> Transcript:
        return self.query_one(Transcript)

    @property
    def _prompt(self) -> Prompt:
        return self.query_one(Prompt)

    @property
    def _status(self) -> Status:
        return self.query_one(Status)

    @property
    def typed(self) -> str:
        """The text in the prompt."""
        return self._prompt.text

    def show(self, chat: Chat) -> None:
        """Show another chat; an answer of the previous one continues."""
        self._leave_edit()
        self.chat = chat
        self._show_said()
        self._show_status()
        self._prompt.take_focus()
        self.attempt(chat.pick_up())

    def _show_said(self, *, keeping: bool = False) -> None:
        """Show the messages, or the welcome without any; ``keeping`` the scroll position."""
        self._transcript.display = bool(self.chat.said)
        self.query_one(Welcome).display = not self.chat.said
        self._transcript.show(self.chat.said, keeping=keeping)

    # Requests of the user.

    def on_prompt_sent(self, wish: Prompt.Sent) -> None:
        command = parse(wish.text)
        if command is not None:
            self._leave_edit()
            self.action_run(*command)
        else:
            self.attempt(self._say(wish.text), otherwise=wish.text)

    def on_key(self, event: Key) -> None:
        """Pass typed characters without a binding to the prompt, until the messages have the focus again."""
        is_bound = event.key in self.active_bindings and not self._typing
        if event.is_printable and event.character and not is_bound:
            event.stop()
            self._typing = True
            self._prompt.type(event.character)

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        if event.widget is self._transcript:
            self._typing = False

    def on_paste(self, event: Paste) -> None:
        if not self._prompt.has_focus_within:
            self._prompt.paste(event)

    def on_prompt_begun(self, fact: Prompt.Begun) -> None:
        chat = self.chat
        if chat.pairing is None and chat.session is not None and chat is not self._warmed:
            self._warmed = chat
            self.attempt(chat.load())  # while it is written

    def on_composer_refused(self, event: Composer.Refused) -> None:
        self.show_error(event.error)

    def on_welcome_asked(self, wish: Welcome.Asked) -> None:
        self.attempt(self._say(wish.text), otherwise=wish.text)
        self._prompt.take_focus()

    async def _say(self, text: str) -> None:
        """Send a message with the files that it mentions."""
        await self.settled.wait()  # the first chat may be replaced by a stored one until then
        chat, editing = self.chat, self._editing
        if "@" in text:
            before = "" if editing is None else editing.text
            text = await asyncio.to_thread(attached, text, self.files.directory, before)
        if editing is not None and editing is self._editing and not chat.answering:
            self._leave_edit(keeping=True)
        await self.answer(chat, chat.send(text) if editing is None else chat.edit(editing, text))

    def on_transcript_asked(self, wish: Transcript.Asked) -> None:
        match wish.what:
            case "regenerate":
                self._prompt.take_focus()
                self.attempt(self.answer(self.chat, self.chat.regenerate(wish.said)))
            case "edit":
                self.attempt(messages.edit_of(self, wish.said))
            case "fork":
                self.attempt(sessions.fork_at(self, wish.said))
            case "copy":
                messages.copy_text(self, wish.said)
            case "copy_code":
                self.attempt(messages.copy_code(self, wish.said))

    def action_run(self, name: str, argument: str = "") -> None:
        """Run a command by name."""
        try:
            command = COMMANDS.find(name)
        except LocalspecError as error:
            self.show_error(error)
        else:
            self.attempt(command.work(self, argument))

    async def action_look(self, where: str) -> None:
        """Scroll the messages, whichever widget has the focus."""
        await self._transcript.run_action(where)

    def action_leave(self) -> None:
        """Leave the messages, or else stop the answer, or else leave the edit."""
        self.app.clear_notifications()
        if not self._prompt.has_focus_within:
            self._prompt.take_focus()
        elif self.chat.answering:
            self.chat.stop()
        else:
            self._leave_edit()

    def begin_edit(self, question: Question) -> None:
        """Put ``question`` into the prompt, to be replaced by the text that is sent."""
        if self._editing is None:
            self._draft = self._prompt.text
        else:
            self._prompt.remember(self._prompt.text)
        self._editing = question
        self._prompt.title = "Edits the question and drops later messages; Esc leaves it"
        self._prompt.text = question.written
        self._prompt.take_focus()

    def attach(self, mention: str) -> None:
        """Insert a mention of a file into the prompt."""
        self._prompt.insert(mention)
        self._prompt.take_focus()

    def _leave_edit(self, *, keeping: bool = False) -> None:
        """End the edit: the text before it comes back, unless ``keeping`` the current one. The other can
        be recalled with the key up."""
        if self._editing is None:
            return
        typed, before = self._prompt.text, self._editing.written
        draft, self._draft = self._draft, ""
        self._editing, self._prompt.title = None, ""
        if keeping and typed:
            self._prompt.remember(draft)
        else:
            self._prompt.remember(typed if typed != before else "")
            self._prompt.text = draft

    def begin(self, text: str) -> None:
        """Put a text into the prompt; its previous text can be recalled with the key up."""
        self._prompt.remember(self._prompt.text)
        self._prompt.text = text
        self._prompt.take_focus()

    def colour(self) -> None:
        """Switch between Markdown, and raw text coloured by proposer with the rounds above the prompt."""
        raw = not self._transcript.raw
        self._transcript.colour(raw)
        self.query_one(Pulse).display = raw

    def details(self, answer: Answer) -> None:
        """Show or hide the statistics of an answer."""
        self._transcript.details(messages.place_of(self, answer))

    def help(self) -> None:
        """Show all commands and keys."""
        keys = {
            "Keys": [*self.BINDINGS, *self.app.BINDINGS],
            "In the prompt": [*Prompt.BINDINGS, *Composer.BINDINGS],
            "On a message": Transcript.BINDINGS,
            "In the list of chats": SessionList.BINDINGS,
        }
        self.app.push_screen(HelpScreen(keys))

    # Running work.

    def attempt(self, work: Coroutine[Any, Any, None], *, otherwise: str = "") -> None:
        """Run ``work`` in the background. An error is shown, and the text ``otherwise`` put back into the
        prompt, unless its chat was left: private text must not appear in another chat."""
        chat = self.chat

        async def attempted() -> None:
            try:
                await work
                self._prompt.belong_to(self.chat.title)
                return
            except LocalspecError as error:
                if not chat.discarded:
                    self.show_error(error)
            except Exception as error:  # an internal error must not end the chat, and lose what was typed
                self.show_error(defects.report(error))
            if otherwise and not self._prompt.text and chat is self.chat:
                self._prompt.text = otherwise

        self.run_worker(attempted())

    async def answer(self, chat: Chat, turn: Coroutine[Any, Any, None]) -> None:
        """Run a turn in ``chat``; raises :class:`EngineBusy` during another one."""
        await self.settled.wait()
        if chat.answering:
            turn.close()
            raise EngineBusy("this chat is still answering", "Wait for its end, or stop it with Esc.")
        await turn

    async def busy(self, label: str, work: Awaitable[T]) -> T:
        """Return the result of ``work``; ``label`` is shown meanwhile."""
        self.on_working(facts.Working(label, None))
        found = await work
        self._show_status()
        return found

    async def _aside(self, work: Awaitable[T]) -> T:
        """Return the result of optional work; a failure or cancellation removes its progress, and shows no
        error."""
        try:
            return await work
        except BaseException:  # also a cancellation, when something else is typed meanwhile
            self.call_later(self._show_status)  # after the facts in the queue
            raise

    async def ask(self, dialog: Dialog[T] | Coroutine[Any, Any, Dialog[T]]) -> T | None:
        """Return the result of a dialog, which may have to be prepared first. None if another one is open or
        being prepared, as when a key is pressed twice."""
        if self._asking or isinstance(self.app.screen, Dialog):
            if isinstance(dialog, Coroutine):
                dialog.close()
            return None
        self._asking = True
        self.app.clear_notifications()  # they would cover it
        try:
            ready = await dialog if isinstance(dialog, Coroutine) else dialog
            is_free = not isinstance(self.app.screen, Dialog)  # another may have been opened meanwhile
            if not is_free:
                return None
            return await self.app.push_screen_wait(ready)
        finally:
            self._asking = False

    def show_error(self, error: LocalspecError) -> None:
        """Show an error and its remedy."""
        self._show_status()
        self.notify(error.remedy, title=error.message, severity="error", timeout=ERROR_SHOWN_S)

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        """Show a notice; markup and control characters in it have no effect."""
        message, title = printable(message), one_line(title)
        for each in list(self.app._notifications):
            if (each.title, each.message) == (title, message):
                self.app._unnotify(each)  # the same notice is shown once
        super().notify(message, title=title, severity=severity, timeout=timeout, markup=markup)

    # Facts.

    def on_changed(self, fact: facts.Changed) -> None:
        if self._editing not in self.chat.said:
            self._leave_edit(keeping=True)  # the typed text stays, as a new message
        self._show_said(keeping=fact.elsewhere)
        self._show_status()

    def on_grown(self, fact: facts.Grown) -> None:
        self._transcript.grown()
        if (answer := self.chat.answer) is not None and answer.tokens:
            self._show_status()

    def on_ended(self, fact: facts.Ended) -> None:
        self._transcript.grown()
        self._show_status()

    def on_paired(self, fact: facts.Paired) -> None:
        self._show_status()
        if not self.chat.said:
            self.attempt(self._greet(fact.pairing))

    async def _greet(self, pairing: Pairing) -> None:
        """Show the models in use, and the first steps if only the bundled one is here. Models are listed
        once, as that may take a while."""
        welcome = self.query_one(Welcome)
        welcome.show(pairing, self._models)
        if not self._models:
            with contextlib.suppress(LocalspecError):  # optional: the user did not request it
                self._models = await self._aside(self.chat.models())
                welcome.show(self.chat.pairing or pairing, self._models)

    def on_touched(self, fact: facts.Touched) -> None:
        if fact.event.session != self.chat.session:
            return
        if fact.event.change == "unsaved":
            self.show_error(DiskFull("the answer could not be stored", "Save it with /export."))
        elif not self.chat.answering:
            self.attempt(self._catch_up())

    async def _catch_up(self) -> None:
        """Read and show changes by other programs."""
        await self.chat.catch_up()
        self._show_status()

    def on_working(self, fact: facts.Working) -> None:
        self._status.display = False
        self.query_one(Progress).show(fact.label, fact.fraction)

    def on_connected(self, fact: facts.Connected) -> None:
        self._status.notice = ""
        self._show_status()
        if fact.again:
            self.attempt(self._catch_up())

    def on_connection_lost(self, fact: facts.ConnectionLost) -> None:
        self._status.notice = "no connection to the daemon; the next message starts it"
        self._show_status()

    def on_failed(self, fact: facts.Failed) -> None:
        self.show_error(fact.error)

    def on_done(self, fact: facts.Done) -> None:
        self.notify(fact.sentence)

    def _show_status(self) -> None:
        chat, status = self.chat, self._status
        self.query_one(Progress).show("", None)
        status.display = True
        status.pairing, status.private = chat.pairing, chat.private
        status.show(chat.answer)
        self.query_one(Pulse).show(chat.answer)
        self._prompt.belong_to(self.chat.title)
