"""One chat with the daemon: what was said in it, and what is being said. Knows no widget."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace
from textual.message import Message

from localspec.errors import DaemonUnavailable, Gone, LocalspecError, SessionNotFound
from localspec.protocol.messages import ModelProgress, SpeculationDegraded, StreamDelta, StreamProgress
from localspec.protocol.options import Options
from localspec.protocol.results import Result
from localspec.protocol.sessions import Pairing, SessionContent
from localspec.tui.conversation import Answer, Question, Said, said_in, shown
from localspec.tui.facts import Changed, Done, Ended, Failed, Grown, Paired, Working
from localspec.tui.link import Link

if TYPE_CHECKING:
    from localspec.client import Client, Event, Stream
    from localspec.protocol.messages import ModelDescription

LOADED_BY = ("model", "draft", "backend")
"""options by which another model is loaded"""
BATCH_S = 0.1
"""between two looks at an answer that grows: each costs a painting of the screen"""

Begin = Callable[["Client", str], "Stream[Result]"]


class Chat:
    """One session; the daemon opens it when something is said. ``tell`` hears what happens."""

    def __init__(
        self, link: Link, tell: Callable[[Chat, Message], object], options: Options, *, private: bool = False
    ) -> None:
        self._link = link
        self._hears = tell
        self.options = options
        self.system: str | None = None
        self.private = private
        self.session: str | None = None
        self.title = ""
        self.pairing: Pairing | None = None
        self.said: list[Said] = []
        self._stream: Stream[Result] | None = None
        self._grown: asyncio.TimerHandle | None = None
        self._stopped = False
        self._discarded = False

    @property
    def answer(self) -> Answer | None:
        """The last answer."""
        last = self.said[-1] if self.said else None
        return last if isinstance(last, Answer) else None

    @property
    def answering(self) -> bool:
        return self.answer is not None and self.answer.growing

    def _tell(self, fact: Message) -> None:
        if not self._discarded:
            self._hears(self, fact)

    # What a person does.

    async def send(self, text: str) -> None:
        """Say something, and have it answered."""
        question = Question(text)
        await self._ask([*self.said, question], lambda client, session: client.chat(session, text))

    async def regenerate(self, said: Said | None = None) -> None:
        """Have a question answered anew, or the one that an answer answered; else the last one."""
        number = self._question_of(said)
        if number is None:
            return
        question = self.said[number]
        if (id := question.id) is None:  # the daemon never heard of it
            self.said = self.said[:number]
            await self.send(question.text)
            return
        await self._ask(self.said[: number + 1], lambda client, session: client.regenerate(session, id))

    async def edit(self, question: Question, text: str) -> None:
        """Say something else in the place of ``question``, dropping what came after it."""
        before = self.said[: self.said.index(question)]
        if (id := question.id) is None:
            self.said = before
            await self.send(text)
            return
        edited = [*before, Question(text, id)]
        await self._ask(edited, lambda client, session: client.edit(session, id, text))

    def stop(self) -> None:
        """End the answer that is being given."""
        self._stopped = True
        if self._stream is not None:
            self._stream.stop()

    async def fork(self, said: Said | None) -> str | None:
        """A new session with what was said up to ``said``, or with all; None where the daemon does not
        know of it yet."""
        id = None if said is None else said.id
        if (session := self.session) is None or (said is not None and id is None):
            return None
        return await self._link.ask(lambda client: client.fork_session(session, id))

    async def discard(self) -> None:
        """Delete it, with what is being said in it; nothing is told of it any more."""
        self._discarded = True
        self.stop()
        await self._delete()

    async def configure(self, options: Options) -> None:
        """Set all options, from the next answer on. Another model is loaded first, telling how far that is;
        one that cannot be loaded changes nothing."""
        if any(getattr(options, field) != getattr(self.options, field) for field in LOADED_BY):
            await self._load(options)
        if (session := self.session) is not None:
            await self._link.ask(lambda client: client.configure_session(session, options))
        self.options = options
        if self.pairing is not None:
            self._paired(replace(self.pairing, proposer=options.proposer or "auto"))

    async def models(self) -> tuple[ModelDescription, ...]:
        """The models on this disk."""
        return await self._link.ask(lambda client: client.models())

    async def load(self) -> None:
        """Have its model loaded before it is needed."""
        await self._load(self.options)

    async def restore(self, session: str) -> None:
        """Become the chat of a session that the daemon has stored."""
        content = await self._link.ask(lambda client: client.session(session))
        self.session, self.private = session, content.private
        self.title, self.options, self.system = content.title, content.options, content.system
        self.said = said_in(content)

    # How an answer comes.

    async def _ask(self, said: list[Said], begin: Begin) -> None:
        """Have the last of ``said`` answered."""
        answer = Answer(status="streaming", waiting="asking")
        self.said = [*said, answer]
        self._stopped = False
        self._tell(Changed())
        try:
            client = await self._link.client()
            session = await self._opened(client)
            await self._follow(begin(client, session), client, answer)
        except SessionNotFound:
            answer.status, answer.error = "failed", _deleted()
        except LocalspecError as error:
            answer.status, answer.error = "failed", error
        finally:
            self._stream = None
            self._end(answer)
        await (self._delete() if self._discarded else self._learn_ids())

    async def _opened(self, client: Client) -> str:
        """The session; opened now, if this is the first that is said in it."""
        if self.session is None:
            stream = client.open(system=self.system, private=self.private, options=self.options)
            async for event in stream.events():
                self._take(event, self.answer)
            opened = await stream.result()
            self.session = opened.session
            self._paired(opened.pairing)
        return self.session

    async def _follow(self, stream: Stream[Result], client: Client, answer: Answer) -> None:
        """Take the answer as it comes, over as many connections as it takes."""
        while True:
            self._stream = stream
            if self._stopped:
                stream.stop()
            try:
                async for event in stream.events():
                    self._take(event, answer)
                result = await stream.result()
            except DaemonUnavailable:
                if not client.lost or stream.name is None:
                    raise
                client = await self._link.client()
                stream = client.resume(stream.name, stream.seq)
            except Gone:
                raise Gone("the daemon ended while it answered", "Answer anew with ctrl+r.") from None
            else:
                answer.result = result
                answer.status = "cancelled" if result.finish_reason == "cancelled" else "complete"
                return

    def _take(self, event: Event, answer: Answer | None) -> None:
        match event:
            case StreamDelta():
                if answer is not None:
                    answer.grow(event.text, event.tokens)
            case ModelProgress():
                self._wait(answer, f"loading the {event.stage} model", event.fraction)
            case StreamProgress(stage="prefill"):
                self._wait(answer, "reading the prompt", event.fraction)
            case StreamProgress():
                self._wait(answer, "waiting for its turn", None)
            case SpeculationDegraded():
                self._tell(Done(f"{event.source} failed ({event.reason}); going on with {event.to}"))
        self._soon()

    def _wait(self, answer: Answer | None, what: str, fraction: float | None) -> None:
        if answer is not None:
            answer.waiting = what if fraction is None else f"{what} {fraction:.0%}"
        self._tell(Working(what, fraction))

    def _soon(self) -> None:
        """Tell of what has come in a moment, together with what comes until then."""
        if self._grown is None:
            self._grown = asyncio.get_running_loop().call_later(BATCH_S, self._tell_grown)

    def _tell_grown(self) -> None:
        self._grown = None
        self._tell(Grown())

    def _end(self, answer: Answer) -> None:
        if self._grown is not None:
            self._grown.cancel()
            self._grown = None
        if answer.growing:  # the program ends, or a defect of ours
            answer.status = "failed"
        self._tell(Ended())

    async def _delete(self) -> None:
        if (session := self.session) is not None:
            self.session = None
            with contextlib.suppress(SessionNotFound):  # another program was faster, or the daemon has ended
                await self._link.ask(lambda client: client.delete_session(session))

    # What else the daemon knows.

    async def _load(self, options: Options) -> None:
        client = await self._link.client()
        stream = client.load(
            options.model, draft=options.draft, backend=options.backend, workspace=options.workspace
        )
        async for event in stream.events():
            self._take(event, None)
        loaded = await stream.result()
        proposer = options.proposer or "auto"
        self._paired(Pairing(loaded.model, loaded.draft, proposer, loaded.backend, loaded.reason))

    def _paired(self, pairing: Pairing) -> None:
        self.pairing = pairing
        self._tell(Paired(pairing))

    async def _learn_ids(self) -> None:
        """By which ids the daemon knows what was said, and how it calls the whole."""
        if (session := self.session) is None:
            return
        try:
            content = await self._link.ask(lambda client: client.session(session))
        except SessionNotFound:
            self._tell(Failed(_deleted()))
            return
        except LocalspecError as error:
            self._tell(Failed(error))
            return
        self.title = content.title
        self._match(content)

    def _match(self, content: SessionContent) -> None:
        for said, stored in zip(self.said, content.messages, strict=False):
            is_question = isinstance(said, Question)
            if is_question != (stored.role == "user"):
                return
            if is_question and said.text not in (stored.content, shown(stored.content)):
                return
            said.id = stored.id

    def _question_of(self, said: Said | None) -> int | None:
        """Where the question stands that ``said`` is, or answers."""
        last = len(self.said) - 1 if said is None else self.said.index(said)
        return next((n for n in range(last, -1, -1) if isinstance(self.said[n], Question)), None)


def _deleted() -> SessionNotFound:
    remedy = "Keep what you see with /export; /new begins another."
    return SessionNotFound("another program has deleted this chat", remedy)
