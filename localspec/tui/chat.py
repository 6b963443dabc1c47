"""One chat with the daemon: its messages, and the answer in progress. Independent of widgets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar

from msgspec.structs import replace
from textual.message import Message

from localspec.agent.loop import CANCELLED, CallRun, Consent, Toolbox, Writing, converse
from localspec.agent.server import ToolError
from localspec.client import Client, Event, Stream
from localspec.errors import DaemonUnavailable, EngineBusy, Gone, LocalspecError, SessionNotFound
from localspec.protocol import messages as wire
from localspec.protocol.options import Options
from localspec.protocol.requests import Result
from localspec.tools.words import may_be_json
from localspec.tui.conversation import (
    ChatAnswer,
    ChatCall,
    ChatQuestion,
    Said,
    last_question,
    read_messages,
    replace_controls,
)
from localspec.tui.facts import Changed, Configured, Grown, Paired, RequestFailed, Working
from localspec.tui.link import DaemonLink
from localspec.wording import one_line, underway

LOADED_BY = ("model", "draft", "backend")
"""options that decide which models are loaded"""
FIELDS = Options.__struct_fields__
BATCH_S = 0.1
"""between two reports of a growing answer: each costs a painting of the screen"""
WORK_S = 1.0
"""between two reports of work, whose time is shown"""

T = TypeVar("T")
Begin = Callable[..., wire.ChatTurn]
"""a turn, but for its session and its tools"""


class Tools:
    """The tools of all chats of a program: ``ask`` returns the user's consent to a call."""

    def __init__(self, ask: Callable[[CallRun], Awaitable[Consent]]) -> None:
        self.box, self.ask = Toolbox(), ask


class Chat:
    """One session, opened at the first message. ``report`` takes facts; answers may call ``tools``."""

    def __init__(
        self,
        link: DaemonLink,
        report: Callable[[Chat, Message], object],
        options: Options,
        tools: Tools,
        *,
        private: bool = False,
    ) -> None:
        self._link = link
        self._tools = tools
        self._report_to = report
        self.options = options
        self.system: str | None = None
        self.private = private
        self.session: str | None = None
        self.title = ""
        self.pairing: wire.Pairing | None = None
        self.said: list[Said] = []
        self._stream: Stream[Any] | None = None
        self._work: asyncio.Future[Any] | None = None
        """work that is cancelled by a stop: connecting, or a call"""
        self._grown: asyncio.TimerHandle | None = None
        self.stopped = False
        """True if the user has stopped the current turn, or the last one"""
        self.discarded = False
        self._is_gone = False
        """True if the session's deletion by others was reported"""
        self._turn = asyncio.Lock()
        """held during a turn, until the stored session is read at its end"""
        self.answering = False
        """True during a turn, also while it waits for that lock"""
        self._left: str | None = None
        """the name of the stream of a running answer that an earlier client began"""
        self._configuring = asyncio.Lock()
        self._loads = 0

    @property
    def answer(self) -> ChatAnswer | None:
        """The last message, if it is an answer."""
        last = self.said[-1] if self.said else None
        return last if isinstance(last, ChatAnswer) else None

    @property
    def is_unloaded(self) -> bool:
        """True if the chat was opened again, and its model has not been requested yet."""
        return self.session is not None and self.pairing is None and not self._loads

    def loads(self, options: Options) -> bool:
        return all(getattr(self.options, each) == getattr(options, each) for each in LOADED_BY)

    def _report(self, fact: Message) -> None:
        if not self.discarded:
            self._report_to(self, fact)

    async def send(self, text: str) -> None:
        """Send a message as the next turn, and follow the answer to its end. Raises :class:`Gone` if it is
        stopped before the answer begins, and the error of the daemon if that did not accept the message; the
        messages are then as they were."""
        async with self._taking_turn():
            await self._converse([*self.said, ChatQuestion(text)], partial(wire.ChatSend, content=text))

    async def regenerate(self, said: Said | None = None) -> None:
        """Answer a question again: ``said``, or the question of that answer; by default the last one."""
        async with self._taking_turn():
            before, question, id = await self._find_question(self.question_of(said))
            await self._converse([*before, question], partial(wire.ChatRegenerate, message=id))

    async def edit(self, question: ChatQuestion, text: str) -> None:
        """Replace ``question`` by ``text``, dropping all messages after it."""
        async with self._taking_turn():
            before, _, id = await self._find_question(question)
            edit = partial(wire.ChatEdit, message=id, content=text)
            await self._converse([*before, ChatQuestion(text)], edit)

    def stop(self) -> None:
        """Stop the current answer, and the call that it makes."""
        self.stopped = True
        if self._work is not None:
            self._work.cancel()
            self._report(Working("stopping", None))
        if self._stream is not None:
            self._stream.stop()

    async def discard(self) -> None:
        """Delete the chat and stop its answer; nothing is reported of it any more."""
        self.discarded = True
        self.stop()
        await self._delete()

    async def configure(self, options: Options) -> None:
        """Set the changed ``options``, from the next answer on. Another model is loaded first, with its
        progress reported; if that fails, nothing is changed."""
        changed = {f: v for f in FIELDS if (v := getattr(options, f)) != getattr(self.options, f)}
        async with self._configuring:
            options = replace(self.options, **changed)  # something else may have been set meanwhile
            if not changed.keys().isdisjoint(LOADED_BY):
                await self.load(options)
            if (session := self.session) is not None:
                await self._link.ask(lambda client: client.configure_session(session, options))
            self.options = options
        self._report(Configured(changed))
        if self.pairing is not None:
            self._set_pairing(replace(self.pairing, proposer=options.proposer or "auto"))

    async def load(self, options: Options | None = None) -> None:
        """Load the chat's models, or those of ``options``, before they are needed."""
        options = self.options if options is None else options
        self._loads = newest = self._loads + 1
        self._report(Working(_loading(options.model), None))
        client = await self._link.client()
        stream = client.load(options)
        async for event in stream.events():
            self._take(event, None)
        loaded = await stream.result()
        if newest == self._loads:
            facts = (loaded.draft, options.proposer or "auto", loaded.backend, loaded.reason)
            self._set_pairing(wire.Pairing(loaded.model, *facts, loaded.placement))

    async def restore(self, session: str) -> None:
        content = await self._link.ask(lambda client: client.session(session))
        if self._turn.locked():
            return  # a turn has begun meanwhile: it reads the session again at its end
        self.session, self.private, self.system = session, content.private, content.system
        self._adopt(content.options)
        self._match(content)

    async def pick_up(self) -> None:
        """Read changes by other clients, and follow a running answer that one left, from its first token."""
        if self._left is None:
            await self.catch_up()
        name, self._left = self._left, None
        if name is None or self.answer is None:
            return
        async with self._taking_turn():
            answer = ChatAnswer(status="streaming", id=self.answer.id, waiting="waiting for the answer")
            self.said = [*self.said[:-1], answer]
            self._report(Changed())
            try:
                client = await self._link.client()
                await self._follow(client.resume(name), client, answer)
            except LocalspecError:
                answer.status, answer.elsewhere = "failed", True  # the stored session has its real ending
            finally:
                self._stream = None
                self._end(answer)
        await self.catch_up()

    async def catch_up(self) -> None:
        """Read changes by other clients; during a turn that happens at its end."""
        if self._turn.locked():
            return
        async with self._turn:
            if (content := await self._read_session()) is not None:
                self._adopt(content.options)
                self._match(content, elsewhere=True)

    @asynccontextmanager
    async def _taking_turn(self) -> AsyncIterator[None]:
        """Hold the chat for one turn; raises :class:`EngineBusy` during another one."""
        if self.answering:
            raise EngineBusy("this chat is still answering", "Wait for its end, or stop it with Esc.")
        self.stopped, self.answering = False, True
        try:
            if self._turn.locked():
                self._report(Working("reading the stored chat", None))
            async with self._turn:
                yield
        finally:
            self.answering = False
            self._report(Grown(ended=True))

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of ``work``, with reports meanwhile; raises :class:`Gone` if it is stopped."""
        self._work = task = asyncio.ensure_future(work)
        if self.stopped:
            task.cancel()
        try:
            while not (await asyncio.wait({task}, timeout=WORK_S))[0]:
                self._report(Grown())
        finally:
            self._work = None
            task.cancel()  # has no effect on a finished one
        if task.cancelled():
            raise _make_stop_error()
        return task.result()

    async def _converse(self, said: list[Said], begin: Begin) -> None:
        """Answer the last of ``said``, and go on after the calls of the answer."""
        if not await converse(self._tools.box, _Front(self, said, begin)):
            self.fail(LocalspecError("the model did not answer in words", "Ask it in other words."))

    async def turn(self, said: list[Said], begin: Begin, *, results: bool = False) -> Result | None:
        """Answer the last of ``said``; returns the answer, None if it failed. ``results`` are stored even if
        the turn is stopped. If the daemon did not accept it, the messages are restored and the error is
        raised."""
        before, answer = self.said, ChatAnswer(status="streaming", waiting="waiting for the answer")
        self.said = [*said, answer]
        self._report(Changed(keeping=results))
        try:
            client = await (self._ready() if results else self._unless_stopped(self._ready()))
        except BaseException:
            self._end(answer)
            self.said = before
            self._report(Changed())
            raise
        try:
            session = await self._open_session(client)
            answer.model = "" if self.pairing is None else self.pairing.target
            if self.stopped and not results:
                raise _make_stop_error()
            turn = begin(session=session, tools=self._tools.box.tools)
            await self._follow(client.chat(turn), client, answer)
        except SessionNotFound:
            answer.status, answer.error = "failed", self._make_deletion_error()
        except LocalspecError as error:
            answer.status, answer.error = "failed", error
        finally:
            self._stream = None
            self._end(answer)
        if self.discarded:
            await self._delete()
        else:
            await self._settle(answer, before)
        return answer.result

    async def call(self, call: Coroutine[Any, Any, str]) -> str:
        self._report(Grown())
        try:
            return await self._unless_stopped(call)
        except Gone:
            raise ToolError(CANCELLED) from None

    def fail(self, error: LocalspecError) -> None:
        self._report(RequestFailed(error))

    def show(self, made: CallRun) -> None:
        if made.text is None:
            self.said.append(ChatCall(made))
            self._report(Changed(keeping=True))
            self._report(Working(f"calling {one_line(made.call.name)}", None))
        else:
            self._report(Grown())

    async def consent(self, made: CallRun) -> Consent:
        """Return the user's consent to a call, "no" if the answer is stopped."""
        name = one_line(made.call.name)
        self._report(Working(f"asking before {name}", None))
        consent = "no" if self.stopped else await self._tools.ask(made)
        self._report(Working(f"calling {name}", None))
        return "no" if self.stopped else consent

    async def _settle(self, answer: ChatAnswer, before: list[Said]) -> None:
        """Keep what the daemon has stored of the turn; raises the error of ``answer`` if that is nothing."""
        content = await self._read_session()
        if (result := answer.result) is not None:
            with contextlib.suppress(LocalspecError):  # optional
                loaded = (await self._link.ask(lambda client: client.status())).models
                answer.context = next((each.n_ctx for each in loaded if each.model == result.model), 0)
        taken = bool(answer.text) or (result is not None and result.finish_reason != "cancelled")
        if content is not None:
            self._match(content)
        elif not taken:
            self.said = before
            self._report(Changed())
        if not taken and answer not in self.said:
            raise answer.error or _make_stop_error()

    async def _ready(self) -> Client:
        """A connected client, once a model that was chosen before, or a stored chat's own, is loaded."""
        if self._configuring.locked():
            self._report(Working("waiting for the chosen model", None))
        async with self._configuring:
            if self.session is not None and self.pairing is None:
                await self.load()
            return await self._link.client()

    async def _open_session(self, client: Client) -> str:
        """Return the session's id; opens the session if this is the first message."""
        if self.session is None:
            stream = client.open(system=self.system, private=self.private, options=self.options)
            self._stream = stream
            if self.stopped:
                stream.stop()
            async for event in stream.events():
                self._take(event, self.answer)
            opened = await stream.result()
            self.session = opened.session
            self._set_pairing(opened.pairing)
        return self.session

    async def _follow(self, stream: Stream[Result], client: Client, answer: ChatAnswer) -> None:
        """Receive the answer; after a lost connection, resume it on a new one."""
        while True:
            self._stream = stream
            if self.stopped:
                stream.stop()
            try:
                async for event in stream.events():
                    self._take(event, answer)
                    if answer.writing.is_endless:
                        stream.stop()
                result = await stream.result()
            except DaemonUnavailable:
                if not client.lost or stream.name is None:
                    raise
                client = await self._link.client()  # stop() has no effect until this returns
                stream = client.resume(stream.name, stream.seq)
            except Gone:
                raise Gone("the daemon ended during the answer", "Press Ctrl-R to answer again.") from None
            else:
                answer.result = result
                answer.status = "cancelled" if result.finish_reason == "cancelled" else "complete"
                answer.calls = result.calls
                return

    def _take(self, event: Event, answer: ChatAnswer | None) -> None:
        match event:
            case wire.StreamDelta():
                if answer is not None:
                    answer.grow(event)
            case wire.ModelProgress() if answer is None or not answer.tokens:  # else of another model
                self._wait(answer, *underway(_loading(event.model, event.stage), event.fraction))
            case wire.StreamProgress(stage="prefill"):
                self._wait(answer, "reading the prompt", event.fraction)
            case wire.StreamProgress():
                model = "the model" if self.pairing is None else self.pairing.target
                self._wait(answer, f"waiting for {model}", None)
            case wire.SpeculationDegraded():
                sentence = f"the proposer {event.source} failed: {event.reason}"
                self.fail(LocalspecError(sentence, f"The answer continues with {event.to}."))
        if answer is not None and self._grown is None:  # the growth until then is reported together
            self._grown = asyncio.get_running_loop().call_later(BATCH_S, self._report_grown)

    def _wait(self, answer: ChatAnswer | None, what: str, fraction: float | None) -> None:
        if answer is not None:
            answer.waiting = what if fraction is None else f"{what} {fraction:.0%}"
        self._report(Working(what, fraction))

    def _report_grown(self) -> None:
        self._grown = None
        self._report(Grown())

    def _end(self, answer: ChatAnswer) -> None:
        if self._grown is not None:
            self._grown.cancel()
            self._grown = None
        if answer.growing:  # the program ends, or an internal error
            answer.status = "failed"
        self._report(Grown(ended=True))

    async def _delete(self) -> None:
        if (session := self.session) is not None:
            self.session = None
            with contextlib.suppress(SessionNotFound):  # another program was faster, or the daemon has ended
                await self._link.ask(lambda client: client.delete_session(session))

    def _set_pairing(self, pairing: wire.Pairing) -> None:
        self.pairing = pairing
        self._report(Paired())

    async def _read_session(self) -> wire.SessionContent | None:
        """The stored session; None if there is none, or if reading it failed, which is reported."""
        if (session := self.session) is None:
            return None
        try:
            return await self._link.ask(lambda client: client.session(session))
        except SessionNotFound:
            if not self._is_gone:
                self._is_gone = True
                self.fail(self._make_deletion_error())
        except LocalspecError as error:
            self.fail(error)
        return None

    def _adopt(self, options: Options) -> None:
        """Take the stored options; other models are loaded for the next message."""
        if not self.loads(options):
            self.pairing = None
        self.options = options

    def _match(self, content: wire.SessionContent, *, elsewhere: bool = False) -> None:
        """Take ids, title, an answer that was left, and the stored messages if they are others."""
        self.title = content.title
        self._left = content.messages[-1].stream if content.messages else None
        pairs = zip(self.said, content.messages, strict=False)
        same = list(takewhile(lambda pair: _is(*pair), pairs))
        for said, stored in same:
            said.id = stored.id
        if not len(self.said) == len(content.messages) == len(same):
            self.said = [*self.said[: len(same)], *read_messages(content)[len(same) :]]
            self._report(Changed(elsewhere))

    async def _find_question(self, question: ChatQuestion | None) -> tuple[list[Said], ChatQuestion, int]:
        """The messages before a question, it, and its stored id; raises :class:`Gone` if it is not stored."""
        if question is not None and question.id is None and (content := await self._read_session()):
            self._match(content)
        if question is None or question.id is None or question not in self.said:
            raise Gone("the question is no longer in this chat", "Send it again.")
        return self.said[: self.said.index(question)], question, question.id

    def question_of(self, said: Said | None) -> ChatQuestion | None:
        """``said`` if it is a question, or the question that it answers; the last question if it is None."""
        if said is not None and said not in self.said:
            return None
        return last_question(self.said if said is None else self.said[: self.said.index(said) + 1])

    def _make_deletion_error(self) -> SessionNotFound:
        remedy = "Save what is shown with /export, or begin a new chat with /new."
        ended = "this private chat has ended with its daemon" if self.private else ""
        return SessionNotFound(ended or "another program has deleted this chat", remedy)


class _Front:
    """A turn of a chat for :func:`converse`: ``begin`` has the last of ``said`` answered."""

    def __init__(self, chat: Chat, said: list[Said], begin: Begin) -> None:
        self._chat, self._said, self._begin = chat, said, begin
        self.work, self.show, self.fail, self.consent = chat.call, chat.show, chat.fail, chat.consent
        question = last_question(said)
        self.json = may_be_json(question.text if question else "", chat.options)

    @property
    def writing(self) -> Writing:
        return Writing() if self._chat.answer is None else self._chat.answer.writing

    async def answer(
        self, results: tuple[wire.CallResult, ...], how: wire.Instead | None = None
    ) -> Result | None:
        if not results:
            return await self._chat.turn(self._said, self._begin)
        turn = partial(wire.ChatResults, results=results, instead=how)
        return await self._go_on(self._chat.said, turn)

    async def answer_instead(self, how: wire.Instead) -> Result | None:
        said = self._chat.said
        at = max(i for i, each in enumerate(said) if isinstance(each, ChatAnswer))
        return await self._go_on(said[:at], partial(wire.ChatRegenerate, instead=how))

    async def _go_on(self, said: list[Said], begin: Begin) -> Result | None:
        try:
            return await self._chat.turn(said, begin, results=True)
        except LocalspecError as error:  # the question itself was answered
            self.fail(error)
            return None


def _loading(model: str | None, stage: str = "") -> str:
    """The work of loading a model, or its draft; of a path the file's name."""
    name = one_line((model or "the model").rpartition("/")[2].removesuffix(".gguf"))
    return f"loading a draft for {name}" if stage == "draft" else f"loading {name}"


def _make_stop_error() -> Gone:
    return Gone("the answer was stopped before it began", "Send the message again, or another one.")


def _is(said: Said, stored: wire.StoredMessage) -> bool:
    """True if a shown message is the stored one; of an answer received here the text may differ."""
    if said.id not in (None, stored.id) or said.role != stored.role:
        return False
    same = said.text == stored.content or said.text == replace_controls(stored.content)
    if not isinstance(said, ChatAnswer):
        return same
    went_on = said.elsewhere or (said.status == "failed" and stored.status != "failed")
    return not went_on or (same and said.status == stored.status)
