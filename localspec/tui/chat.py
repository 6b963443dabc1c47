"""One chat with the daemon: what was said in it, and what is being said. Knows no widget."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace
from textual.message import Message

from localspec.errors import DaemonUnavailable, Gone, LocalspecError, SessionNotFound
from localspec.protocol.messages import ModelProgress, SpeculationDegraded, StreamDelta, StreamProgress
from localspec.protocol.options import Options
from localspec.protocol.results import Result
from localspec.protocol.sessions import Pairing, SessionContent, StoredMessage
from localspec.tui.conversation import Answer, Question, Said, last_question, said_in, shown
from localspec.tui.facts import Changed, Configured, Done, Ended, Failed, Grown, Paired, Working
from localspec.tui.link import Link

if TYPE_CHECKING:
    from localspec.client import Client, Event, Stream
    from localspec.protocol.messages import ModelDescription

LOADED_BY = ("model", "draft", "backend")
"""options by which another model is loaded"""
FIELDS = Options.__struct_fields__
BATCH_S = 0.1
"""between two looks at an answer that grows: each costs a painting of the screen"""

T = TypeVar("T")
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
        self._stream: Stream[Any] | None = None
        self._grown: asyncio.TimerHandle | None = None
        self._stopped = asyncio.Event()
        self.discarded = False
        """whether it is no more, for the person"""
        self._is_gone = False
        """whether it was told that the session is no more"""
        self._turn = asyncio.Lock()
        """held while a turn is taken, up to the last look at what the daemon has stored of it"""
        self._waiting = False
        """whether somebody waits for that"""
        self._left: str | None = None
        """the answer that a chat which is gone had begun, as the daemon calls it"""
        self._configuring = asyncio.Lock()
        self._loads = 0

    @property
    def answer(self) -> Answer | None:
        """The last answer."""
        last = self.said[-1] if self.said else None
        return last if isinstance(last, Answer) else None

    @property
    def answering(self) -> bool:
        """Whether an answer is given, or is going to be."""
        return self._waiting or (self.answer is not None and self.answer.growing)

    def has_model_of(self, other: Chat) -> bool:
        """Whether the same model is loaded for both."""
        return _same_model(self.options, other.options)

    def _tell(self, fact: Message) -> None:
        if not self.discarded:
            self._hears(self, fact)

    # What a person does.

    async def send(self, text: str) -> None:
        """Say something, and have it answered."""
        async with self._taking_turn():
            await self._ask([*self.said, Question(text)], lambda client, session: client.chat(session, text))

    async def regenerate(self, said: Said | None = None) -> None:
        """Have a question answered anew, or the one that an answer answered; else the last one."""
        async with self._taking_turn():
            question = await self._known(self._question_of(said))
            before, id = self.said[: self.said.index(question)], question.id
            await self._ask([*before, question], lambda client, session: client.regenerate(session, id))

    async def edit(self, question: Question, text: str) -> None:
        """Say something else in the place of ``question``, dropping what came after it."""
        async with self._taking_turn():
            question = await self._known(question)
            before, id = self.said[: self.said.index(question)], question.id
            assert id is not None
            await self._ask([*before, Question(text)], lambda client, session: client.edit(session, id, text))

    def stop(self) -> None:
        """End the answer that is being given."""
        self._stopped.set()
        if self._stream is not None:
            self._stream.stop()

    async def fork(self, said: Said | None) -> str | None:
        """A new session with what was said up to ``said``, or with all; None where the daemon does not
        know of it yet."""
        id = None if said is None else said.id
        if (session := self.session) is None or (said is not None and id is None):
            return None
        client = await self._link.client()
        return await client.fork_session(session, id)  # not to be done twice, should the daemon be lost

    async def discard(self) -> None:
        """Delete it, with what is being said in it; nothing is told of it any more."""
        self.discarded = True
        self.stop()
        await self._delete()

    async def configure(self, options: Options) -> None:
        """Set what differs in ``options``, from the next answer on. Another model is loaded first, telling
        how far that is; one that cannot be loaded changes nothing."""
        changed = {f: v for f in FIELDS if (v := getattr(options, f)) != getattr(self.options, f)}
        async with self._configuring:
            options = replace(self.options, **changed)  # something else may have been set meanwhile
            if not changed.keys().isdisjoint(LOADED_BY):
                await self._load(options)
            if (session := self.session) is not None:
                await self._link.ask(lambda client: client.configure_session(session, options))
            self.options = options
        self._tell(Configured(changed))
        if self.pairing is not None:
            self._paired(replace(self.pairing, proposer=options.proposer or "auto"))

    async def models(self) -> tuple[ModelDescription, ...]:
        """The models on this disk."""
        return await self._link.ask(lambda client: client.models())

    async def load(self) -> None:
        """Have its model loaded before it is needed."""
        await self._load(self.options)

    async def restore(self, session: str) -> None:
        """Become the chat of a session as the daemon has stored it."""
        content = await self._link.ask(lambda client: client.session(session))
        if self._turn.locked():
            return  # a turn has begun meanwhile: what is read then is newer
        self.session, self.private, self.system = session, content.private, content.system
        if self._adopt(content.options):
            self.pairing = None
        self._match(content)
        self._left = content.messages[-1].stream if content.messages else None

    async def pick_up(self) -> None:
        """Follow the answer that a chat which is gone had begun, if there is one, from its first token on."""
        name, self._left = self._left, None
        if name is None or self.answer is None:
            await self.catch_up()
            return
        async with self._taking_turn():
            answer = Answer(status="streaming", id=self.answer.id, waiting="asking")
            self.said = [*self.said[:-1], answer]
            self._tell(Changed())
            try:
                client = await self._link.client()
                await self._follow(client.resume(name), client, answer)
            except LocalspecError:
                answer.status, answer.elsewhere = "failed", True  # how it ended, what is stored says
            finally:
                self._stream = None
                self._end(answer)
        await self.catch_up()

    async def catch_up(self) -> None:
        """Learn what others have done to it; while something is said in it, that is learnt at its end."""
        if self._turn.locked():
            return
        changed = False
        async with self._turn:
            if (content := await self._stored()) is not None:
                changed = self._adopt(content.options)
                self._match(content, elsewhere=True)
        if changed and self.pairing is not None:
            await self.load()

    # How an answer comes.

    @asynccontextmanager
    async def _taking_turn(self) -> AsyncIterator[None]:
        """Inside, nothing else is said in it; raises :class:`Gone` if it is stopped before that."""
        self._stopped.clear()
        self._waiting = self._turn.locked()
        try:
            if self._waiting:
                self._tell(Working("reading what was said before", None))
                await self._unless_stopped(self._turn.acquire())
            else:
                await self._turn.acquire()  # without a pause in which another could begin
        finally:
            self._waiting = False
        try:
            yield
        finally:
            self._turn.release()

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """What ``work`` comes to; raises :class:`Gone` once the answer is to be no more."""
        task, stopped = asyncio.ensure_future(work), asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            task.cancel()  # nothing happens to one that is done
        if task.done():
            return task.result()
        raise _stopped()

    async def _ask(self, said: list[Said], begin: Begin) -> None:
        """Have the last of ``said`` answered.

        Raises what it failed with if the daemon did not take it: all is as it was before then.
        """
        before, answer = self.said, Answer(status="streaming", waiting="asking")
        self.said = [*said, answer]
        self._tell(Changed())
        try:
            client = await self._unless_stopped(self._link.client())
        except BaseException:
            self._end(answer)
            self.said = before
            self._tell(Changed())
            raise
        try:
            session = await self._opened(client)
            if self._stopped.is_set():
                raise _stopped()
            await self._follow(begin(client, session), client, answer)
        except SessionNotFound:
            answer.status, answer.error = "failed", self._deleted()
        except LocalspecError as error:
            answer.status, answer.error = "failed", error
        finally:
            self._stream = None
            self._end(answer)
        if self.discarded:
            await self._delete()
        else:
            await self._settle(answer, before)

    async def _settle(self, answer: Answer, before: list[Said]) -> None:
        """Keep the turn of ``answer``; raises what it failed with if the daemon did not even begin it."""
        content = await self._stored()
        taken = _has_begun(answer) or (content is not None and _is_new(content, len(self.said), before))
        if not taken:
            self.said = before
            self._tell(Changed())
        if content is not None:
            self._match(content)
        if not taken:
            raise answer.error or _stopped()

    async def _opened(self, client: Client) -> str:
        """The session; opened now, if this is the first that is said in it."""
        if self.session is None:
            stream = client.open(system=self.system, private=self.private, options=self.options)
            self._stream = stream
            if self._stopped.is_set():
                stream.stop()
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
            if self._stopped.is_set():
                stream.stop()
            try:
                async for event in stream.events():
                    self._take(event, answer)
                result = await stream.result()
            except DaemonUnavailable:
                if not client.lost or stream.name is None:
                    raise
                client = await self._link.client()  # before that nothing can be stopped
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
            case ModelProgress() if answer is not None and answer.tokens:
                pass  # another model's
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
        self._loads += 1
        newest = self._loads
        client = await self._link.client()
        stream = client.load(
            options.model, draft=options.draft, backend=options.backend, workspace=options.workspace
        )
        async for event in stream.events():
            self._take(event, None)
        loaded = await stream.result()
        proposer = options.proposer or "auto"
        if newest == self._loads:
            self._paired(Pairing(loaded.model, loaded.draft, proposer, loaded.backend, loaded.reason))

    def _paired(self, pairing: Pairing) -> None:
        self.pairing = pairing
        self._tell(Paired(pairing))

    async def _stored(self) -> SessionContent | None:
        """What the daemon has of it; None where it has nothing, or cannot be asked, which is told."""
        if (session := self.session) is None:
            return None
        try:
            return await self._link.ask(lambda client: client.session(session))
        except SessionNotFound:
            if not self._is_gone:
                self._is_gone = True
                self._tell(Failed(self._deleted()))
        except LocalspecError as error:
            self._tell(Failed(error))
        return None

    def _adopt(self, options: Options) -> bool:
        """Take the options that are stored; whether another model is loaded by them."""
        before, self.options = self.options, options
        return not _same_model(before, options)

    def _match(self, content: SessionContent, *, elsewhere: bool = False) -> bool:
        """Learn the ids and the title; whether what is seen is what the daemon has. Otherwise it is now."""
        self.title = content.title
        pairs = zip(self.said, content.messages, strict=False)
        same = list(takewhile(lambda pair: _is(*pair), pairs))
        for said, stored in same:
            said.id = stored.id
        if len(self.said) == len(content.messages) == len(same):
            return True
        self.said = [*self.said[: len(same)], *said_in(content)[len(same) :]]
        self._tell(Changed(elsewhere))
        return False

    async def _known(self, question: Question | None) -> Question:
        """A question with the id that the daemon knows it by; raises :class:`Gone` where it knows none."""
        if question is not None and question.id is None:
            content = await self._stored()
            if content is not None and not self._match(content):
                raise Gone("another program has gone on with this chat", "See what was said, then try again.")
        if question is None or question.id is None or question not in self.said:
            raise Gone("there is no such question any more", "Ask it again.")
        return question

    def _question_of(self, said: Said | None) -> Question | None:
        """The question that ``said`` is, or answers; the last one if it is None."""
        if said is not None and said not in self.said:
            return None
        return last_question(self.said if said is None else self.said[: self.said.index(said) + 1])

    def _deleted(self) -> SessionNotFound:
        remedy = "Keep what you see with /export; /new begins another."
        who = "the daemon has ended, and this private chat with it" if self.private else ""
        return SessionNotFound(who or "another program has deleted this chat", remedy)


def _same_model(one: Options, other: Options) -> bool:
    """Whether the same model is loaded by both."""
    return all(getattr(one, each) == getattr(other, each) for each in LOADED_BY)


def _stopped() -> Gone:
    return Gone("it was stopped before it began", "Send it again, or something else.")


def _has_begun(answer: Answer) -> bool:
    """Whether something came of it: its question was stored before."""
    ended = answer.result is not None and answer.result.finish_reason != "cancelled"
    return bool(answer.text) or ended


def _is_new(content: SessionContent, number: int, before: list[Said]) -> bool:
    """Whether the last of ``number`` messages that are stored was not so ``before``."""
    if len(content.messages) != number:
        return False
    return len(before) < number or before[number - 1].id != content.messages[-1].id


def _is(said: Said, stored: StoredMessage) -> bool:
    """Whether a message that is seen is the stored one; of an answer that was given here the screen may know
    more, or less."""
    if said.id not in (None, stored.id) or isinstance(said, Question) != (stored.role == "user"):
        return False
    same = said.text == stored.content or said.text == shown(stored.content)
    if isinstance(said, Question):
        return same
    went_on = said.elsewhere or (said.status == "failed" and stored.status != "failed")
    return not went_on or (same and said.status == stored.status)
