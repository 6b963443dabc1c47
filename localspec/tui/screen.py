"""The chat's screen: its widgets, and the handlers of facts and of requests by the user."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from textual.app import ComposeResult
from textual.binding import Binding
from textual.events import Key, Paste
from textual.screen import Screen
from textual.widgets import Footer, Static

from localspec.agent.server import ToolServer
from localspec.errors import DiskFull, InvalidOptions, LocalspecError
from localspec.home import here
from localspec.hub.default import MissingModel
from localspec.protocol.messages import ModelDescription
from localspec.thread import on_a_thread
from localspec.tui import defects, facts
from localspec.tui.attach import Files, attach_files
from localspec.tui.chat import Chat, Tools
from localspec.tui.command import Command, Values, find_command, parse
from localspec.tui.conversation import ChatQuestion, Said
from localspec.tui.dialog import Confirm, Dialog
from localspec.tui.link import DaemonLink
from localspec.tui.look import Look
from localspec.tui.widgets.prompt import Prompt
from localspec.tui.widgets.status import legend, summary
from localspec.tui.widgets.transcript import Transcript, Welcome
from localspec.wording import one_line, printable

ERROR_SHOWN_S = 10
LOOK_S = 1.0
"""between two looks at an answer that another program receives"""

T = TypeVar("T")


class Application(Protocol):
    """Keeps the chats; see :class:`~localspec.tui.app.ChatApp`."""

    link: DaemonLink
    tools: Tools

    def new_chat(self, *, private: bool = False) -> Chat: ...
    async def stored_chat(self, session: str) -> Chat: ...
    async def drop(self, session: str) -> None: ...
    async def discard(self, chat: Chat) -> None: ...


class ChatScreen(Screen[None]):
    BINDINGS = [
        Binding("f1", "run('help')", "Help"),
        Binding("escape", "leave", "Stop", show=False),
        Binding("ctrl+o", "run('model')", "Models"),
        Binding("ctrl+n", "run('new')", "New"),
        Binding("ctrl+s", "run('sessions')", "Chats"),
        Binding("ctrl+r", "run('regenerate')", "Again"),
        Binding("ctrl+g", "run('edit')", "Edit"),
        Binding("f2", "run('set')", "Settings"),
        Binding("ctrl+t", "run('colours')", "Colours"),
        Binding("alt+up", "app.focus('transcript')", "Messages", show=False),
        # With priority: the prompt would use them to scroll its few lines.
        Binding("pageup", "look('page_up')", "Page up", show=False, priority=True),
        Binding("pagedown", "look('page_down')", "Page down", show=False, priority=True),
        Binding("ctrl+home", "look('scroll_home')", "The first message", show=False),
        Binding("ctrl+end", "look('scroll_end')", "The last message", show=False),
    ]

    DEFAULT_CSS = """
    ChatScreen { overflow: hidden; }
    ChatScreen > #legend, ChatScreen > #status { width: 1fr; height: 1; padding: 0 1; }
    ChatScreen > #legend { display: none; }
    ChatScreen > #status { color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def __init__(self, chat: Chat) -> None:
        super().__init__()
        self.chat = chat
        self.settled = asyncio.Event()
        """set once the first chat's options are resolved"""
        self.files = Files(here())
        self._editing: ChatQuestion | None = None
        self._notice = ""
        """a text that is shown instead of the status"""

    def compose(self) -> ComposeResult:
        yield Welcome(id="welcome")
        yield Transcript(id="transcript")
        yield Static(id="legend")
        yield Prompt(self.files, id="prompt")
        yield Static(id="status", markup=False)
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        for notices in self.query("ToastRack"):
            self.move_child(notices, before=self.prompt)  # where they cover no text
        self.app.theme_changed_signal.subscribe(self, lambda _: self._show_legend())
        self._show_said()
        self.prompt.take_focus()
        self.set_interval(LOOK_S, self._look_again)

    @property
    def application(self) -> Application:
        return cast(Application, self.app)

    @property
    def _transcript(self) -> Transcript:
        return self.query_one(Transcript)

    @property
    def prompt(self) -> Prompt:
        return self.query_one(Prompt)

    def show(self, chat: Chat) -> None:
        """Show another chat; an answer of the previous one continues."""
        self.prompt.end_wait(send=False)
        self._leave_edit()
        self.chat = chat
        self._show_said()
        self._show_status()
        self.prompt.take_focus()
        self.attempt(chat.pick_up())

    def _show_said(self, *, keeping: bool = False) -> None:
        """Show the messages, or the welcome without any; ``keeping`` the scroll position."""
        self._transcript.display = bool(self.chat.said)
        self.query_one(Welcome).display = not self.chat.said
        self.refresh(layout=True)  # now: after a painting without their layout Textual takes them as painted
        self._transcript.show(self.chat.said, keeping=keeping)

    def on_prompt_sent(self, event: Prompt.Sent) -> None:
        command = parse(event.text)
        if command is not None:
            if not self.prompt.waiting:
                self._leave_edit()
            self.action_run(*command)
        elif self.chat.answering:
            self.prompt.wait(event.text)
        else:
            self.attempt(self._say(event.text), otherwise=event.text)

    def on_key(self, event: Key) -> None:
        """Pass typed characters without a binding to the prompt."""
        if event.is_printable and event.character and event.key not in self.active_bindings:
            event.stop()
            self.prompt.take(event)

    def on_text_area_changed(self) -> None:
        """Load the model of a chat that was opened again while its next message is written."""
        if self.chat.is_unloaded and self.prompt.text[:1] not in ("", "/"):
            self.attempt(self.chat.load())

    def on_paste(self, event: Paste) -> None:
        if not self.prompt.has_focus_within:
            self.prompt.take(event)

    async def _say(self, text: str) -> None:
        await self.settled.wait()  # the first chat may be replaced by a stored one until then
        chat, editing = self.chat, self._editing
        if "@" in text:
            text = await asyncio.to_thread(attach_files, text, self.files.directory)
        if editing is not None and editing is self._editing and not chat.answering:
            self._leave_edit(keeping=True)
        await self.answer(chat.send(text) if editing is None else chat.edit(editing, text))

    def action_chosen(self, what: str) -> None:
        if (said := self._transcript.chosen) is None:
            return
        if what == "regenerate":
            self.prompt.take_focus()
            self.attempt(self.answer(self.chat.regenerate(said)))
        elif what == "edit":
            self.attempt(self.edit(said))
        else:
            self.copy(said.text)

    def action_run(self, name: str, argument: str = "") -> None:
        """Run a command by name; without an argument, offer its values if they are known."""
        try:
            command = find_command(name)
        except LocalspecError as error:
            self.show_error(error)
            return
        if command.values is not None and not argument:
            self.attempt(self._offer(command, command.values))
        else:
            self.attempt(command.work(self, argument))

    async def _offer(self, command: Command, values: Values) -> None:
        """Offer the values of a command's argument; one that ends with a blank is to be continued."""
        await self.settled.wait()
        known = await self.busy(f"looking for the values of /{command.name}", values(self))
        if self.app.screen is self:  # no dialog has been opened meanwhile
            self.app.clear_notifications()  # they would cover it
            chosen = [
                (_text(each), partial(self._choose, command, each), _text(known[each])) for each in known
            ]
            await self.app.search_commands(chosen, placeholder=command.help)

    def _choose(self, command: Command, value: str) -> None:
        if value.endswith(" "):
            self.begin(f"/{command.name} {value}")
        else:
            self.action_run(command.name, value)

    async def models(self) -> Sequence[ModelDescription]:
        return await self.application.link.ask(lambda client: client.models())

    async def download(self, model: MissingModel) -> bool:
        """Download a model of the catalogue; the status shows its progress. Returns True once it is here."""
        loop, left = asyncio.get_running_loop(), threading.Event()

        def report(share: float) -> None:
            if left.is_set():
                raise RuntimeError  # ends the thread; what is here is kept
            loop.call_soon_threadsafe(self.post_message, facts.Working(f"downloading {model.name}", share))

        try:
            await on_a_thread(lambda: model.obtain(progress=report))
            return True
        except LocalspecError as error:
            self.show_error(error)
            return False
        finally:
            left.set()

    async def open_tools(self, servers: list[ToolServer]) -> None:
        if servers:
            box = self.application.tools.box
            remarks = await self.busy("starting the tools", box.open(servers))
            self.notify("\n".join((box.listing, *remarks)), title="Tools")

    async def may_leave(self) -> bool:
        """Return True if the chat may be left: the user confirms it for a private chat with messages."""
        if not (self.chat.private and self.chat.said):
            return True
        return await self.ask(Confirm("Leave this private chat? Nothing of it is kept.", "Leave")) is True

    async def change_to(self, chat: Chat) -> None:
        """Show another chat; a private one is deleted, after a confirmation. A model that is not the current
        one is loaded only when the user types."""
        left = self.chat
        if not await self.may_leave():
            return
        self.show(chat)
        if left.private:
            await self.application.discard(left)
        if chat.session is None or chat.loads(left.options):
            await chat.load()

    def copy(self, text: str) -> None:
        self.app.copy_to_clipboard(text)
        self.notify("Copied.", timeout=2)

    async def edit(self, said: Said | None) -> None:
        """Edit a question, or the question of an answer; without a message, the last question."""
        question = self.chat.question_of(said)
        if question is None:
            raise InvalidOptions("this chat has no such question", "Send a message first.")
        self.prompt.end_wait(send=False)
        self._editing = question
        self.prompt.entitle("Edits the question and drops later messages; Esc leaves it")
        self.begin(question.written)

    async def action_look(self, where: str) -> None:
        """Scroll the panel of keys, or else the messages, whichever widget has the focus."""
        await self.query("KeyPanel, Transcript").last().run_action(where)

    def action_leave(self) -> None:
        """Remove notices and the panel of keys; remove a command without its argument, or else stop the
        answer, or else leave the messages, or else the edit."""
        self.app.clear_notifications()
        self.app.action_hide_help_panel()
        if self.prompt.text.endswith(" ") and parse(self.prompt.text):
            self.prompt.clear()
        elif self.chat.answering:
            self.chat.stop()
        elif self.prompt.has_focus_within:
            self._leave_edit()
        self.prompt.take_focus()

    def _leave_edit(self, *, keeping: bool = False) -> None:
        """End the edit, and clear its text unless ``keeping`` it; the key up recalls a changed one."""
        if self._editing is None:
            return
        if not keeping:
            self.prompt.history.add(self.prompt.text if self.prompt.text != self._editing.written else "")
            self.prompt.text = ""
        self._editing = None
        self.prompt.entitle("")

    def begin(self, text: str) -> None:
        """Put a text into the prompt; its previous text can be recalled with the key up."""
        self.prompt.history.add(self.prompt.text)
        self.prompt.text = text
        self.prompt.take_focus()

    def colour(self) -> None:
        """Switch between Markdown, and raw text coloured by proposer with a legend above the prompt."""
        raw = not self._transcript.raw
        self._transcript.colour(raw)
        self.query_one("#legend").display = raw
        self._show_legend()

    def attempt(self, work: Coroutine[Any, Any, None], *, otherwise: str = "") -> None:
        """Run ``work`` in the background. An error is shown, and the text ``otherwise`` put back into the
        prompt, unless its chat was left: private text must not appear in another chat. A message that waits
        for the end of the answer is sent then, unless the user has stopped that."""
        chat = self.chat

        async def run_work() -> None:
            back = otherwise
            try:
                await work
                self.prompt.belong_to(self.chat.title)
                back = ""
            except LocalspecError as error:
                if not chat.discarded:
                    self.show_error(error)
            except Exception as error:  # an internal error must not end the chat, and lose what was typed
                self.show_error(defects.report(error))
            if back and not self.prompt.text and chat is self.chat:
                self.prompt.text = back
            if not self.chat.answering:
                self.prompt.end_wait(send=not self.chat.stopped)

        self.run_worker(run_work())

    async def answer(self, turn: Coroutine[Any, Any, None]) -> None:
        await self.settled.wait()
        await turn
        self._show_status()  # with what is known at the end only

    async def busy(self, label: str, work: Awaitable[T]) -> T:
        """Return the result of ``work``; ``label`` is shown meanwhile."""
        self.on_working(facts.Working(label, None))
        found = await work
        self._show_status()
        return found

    async def ask(self, dialog: Dialog[T]) -> T | None:
        """Return the result of a dialog; None if another one is open, as when a key is pressed twice."""
        if isinstance(self.app.screen, Dialog):
            return None
        self.app.clear_notifications()  # they would cover it
        return await self.app.push_screen_wait(dialog)

    def show_error(self, error: LocalspecError) -> None:
        self._show_status()
        self.notify(error.remedy, title=error.message, severity="error", timeout=ERROR_SHOWN_S)

    def notify(self, message: str, *, title: str = "", **how: Any) -> None:
        """Show a notice; markup and control characters in it have no effect."""
        super().notify(printable(message), title=one_line(title), **{"markup": False, **how})

    def on_changed(self, fact: facts.Changed) -> None:
        if self._editing not in self.chat.said:
            self._leave_edit(keeping=True)  # the typed text stays, as a new message
        self._show_said(keeping=fact.keeping)
        self._show_status()

    def on_grown(self, fact: facts.Grown) -> None:
        self._transcript.grow()
        answer = self.chat.answer
        if fact.ended or (answer is not None and answer.tokens):
            self._show_status()

    def on_paired(self, fact: facts.Paired) -> None:
        self._show_status()
        if not self.chat.said:
            self.attempt(self._greet())

    async def _greet(self) -> None:
        with contextlib.suppress(LocalspecError):  # optional: the user did not request it
            models = await self.models()
            if self.chat.pairing is not None:
                self.query_one(Welcome).show(self.chat.pairing, models)

    def on_touched(self, fact: facts.Touched) -> None:
        if fact.event.session != self.chat.session:
            return
        if fact.event.change == "unsaved":
            self.show_error(DiskFull("the answer could not be stored", "Save it with /export."))
        elif not self.chat.answering:
            self.attempt(self._catch_up())

    async def _catch_up(self) -> None:
        await self.chat.pick_up()
        self._show_status()

    def _look_again(self) -> None:
        """Show what another program receives, and follow the answer if that has ended: this is no event."""
        answer = self.chat.answer
        if answer is not None and answer.elsewhere and self.application.link.connected:
            self.attempt(self._catch_up())

    def on_working(self, fact: facts.Working) -> None:
        done = "…" if fact.fraction is None else f"{fact.fraction:.0%}"
        self._show_line(f"{fact.label} {done}")

    def on_connected(self, fact: facts.Connected) -> None:
        self._notice = ""
        self._show_status()
        self.attempt(self._catch_up())

    def on_connection_lost(self, fact: facts.ConnectionLost) -> None:
        self._notice = "no connection to the daemon; the next message starts it"
        self._show_status()

    def on_request_failed(self, fact: facts.RequestFailed) -> None:
        self.show_error(fact.error)

    def _show_status(self) -> None:
        chat = self.chat
        self._show_line(self._notice or summary(chat.pairing, chat.answer, private=chat.private))
        self.prompt.belong_to(chat.title)
        self._show_legend()

    def _show_line(self, text: str) -> None:
        self.query_one("#status", Static).update(one_line(text), layout=False)

    def _show_legend(self) -> None:
        if self._transcript.raw:
            line = legend(self.chat.answer, Look.read_app(self.app))
            self.query_one("#legend", Static).update(line, layout=False)


def _text(text: str) -> str:
    """``text`` as the palette shows it: names of files may have brackets, which are markup there."""
    return one_line(text).replace("[", "\\[")
