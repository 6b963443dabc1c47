"""The engine: it takes requests, schedules and advances them step by step, and gives their results.

Completions go before chats, chats before background requests; equals get equal time. A step is one piece of a
prompt or one round. Of the highest class, the request with the least machine time so far is served (fair
queueing by virtual time: Demers, Keshav and Shenker, 1989). Others of its class share its round if a token
then costs less than in separate rounds. That depends on the machine: on a CPU two plain rows took 2.4 times
as long as one, but four speculating requests took half as long together as one by one. A long forward is
given up for a request that must not wait (preemption).
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as Seq
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import msgspec

from localspec.backends.base import ANY_WIDTH, Backend, Interrupted, Span
from localspec.completion.finishing import finished
from localspec.completion.gap import Gap
from localspec.constraints.budget import Budget, Thoughts
from localspec.constraints.constraint import Attempt, Constraint, Grammars, grammar_of
from localspec.engine.idle import Idle
from localspec.engine.learning import Learning
from localspec.engine.prefixes import Prefixes
from localspec.engine.prompt import Encoded, PromptEncoder
from localspec.engine.round import EngineParts, Proposers, play_round
from localspec.engine.sequence import NO_SLOT, Event, Sequence, SequenceLimits
from localspec.engine.settings import RequestSettings, settle
from localspec.errors import EngineError, InvalidOptions, LocalspecError
from localspec.home import workspace_of_file
from localspec.models.needs import Needs
from localspec.process import delay_interrupts
from localspec.protocol.messages import Placement
from localspec.protocol.options import Options, parse_options, readable
from localspec.protocol.requests import (
    CLASSES,
    PATIENCE_S,
    ChatPrompt,
    Delta,
    EngineConfig,
    FimPrompt,
    Message,
    Priority,
    Progress,
    Request,
    Result,
    TextPrompt,
    Tool,
)
from localspec.speculation.costs import WIDE, CostCurve
from localspec.speculation.proposer import Proposer
from localspec.speculation.verify import ForwardRows, TargetRows
from localspec.tools.grammar import AnswerMarkup, answer_grammar, begun_answer

log = logging.getLogger(__name__)


class Preemption:
    """Interrupts forwards of the backend, but only inside :meth:`allow_preemption`: elsewhere it would leave
    a round half done."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self._allowing = self._wanted = False

    def request(self) -> None:
        """Interrupt the forward under way or, if none may be interrupted, the next one; from any thread."""
        with self._lock:
            self._wanted = True
            if self._allowing:
                self._backend.preempt(True)

    @contextmanager
    def allow_preemption(self) -> Iterator[None]:
        """Let a forward inside raise :class:`Interrupted`; after a :meth:`request` raise it at once."""
        with self._lock:
            wanted, self._wanted = self._wanted, False
            self._allowing = not wanted
        if wanted:
            raise Interrupted
        try:
            yield
        finally:
            with self._lock:
                self._allowing = self._wanted = False
                self._backend.preempt(False)


PASSES: dict[Priority, int] = {"completion": 4, "chat": 4, "background": 16}
"""requests of higher classes that get a slot before a waiting one; then it is the first"""
JOINT_COST = 1.1
"""factor by which further requests may raise the cost of a round"""


class Scheduler:
    """Sequences move from waiting to ``running``, where they have a slot; ``costs``: seconds of rounds."""

    def __init__(self, target: Backend, costs: CostCurve, prefixes: Prefixes) -> None:
        self._target, self._costs, self._prefixes = target, costs, prefixes
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []

    @property
    def busy(self) -> bool:
        return bool(self.running or self.waiting)

    @property
    def all(self) -> list[Sequence]:
        return [*self.running, *self.waiting]

    def admit(self) -> list[Sequence]:
        """Give slots to waiting requests: late ones first, then the highest class and the longest wait. If
        all slots are taken, a running request of a lower class is suspended: its cells are saved, and it
        waits. Return the suspended ones."""
        suspended, stuck = list[Sequence](), set[Priority]()
        for sequence in sorted(self.waiting, key=lambda s: (not _is_late(s), _rank(s), s.id)):
            if sequence.priority in stuck:
                continue
            if len(self.running) >= self._target.capabilities.max_sequences:
                victim = self._victim(sequence.priority)
                if victim is None or not self._suspend(victim):
                    stuck.add(sequence.priority)
                    continue
                suspended.append(victim)
            try:
                self._start(sequence)
            except LocalspecError as error:
                sequence.error = error
        return suspended

    def _start(self, sequence: Sequence) -> None:
        if sequence.state is None:
            self._prefixes.take(sequence, self.running)
        else:
            self._prefixes.make_room(self.running)
            sequence.slot, sequence.state = self._target.restore(sequence.state), None
        equals = [s.served for s in self.running if s.priority == sequence.priority]
        sequence.served = max(sequence.served, min(equals, default=0.0))
        self.waiting.remove(sequence)
        self.running.append(sequence)
        for other in self.waiting:
            other.passed += _rank(other) > _rank(sequence)

    def _victim(self, priority: Priority) -> Sequence | None:
        """The running request of the lowest class below ``priority`` with the most machine time, if any."""
        if not self._target.capabilities.saves:
            return None
        rank = CLASSES.index(priority)
        lower = [s for s in self.running if _rank(s) > rank and not s.ended and not _is_late(s)]
        return max(lower, key=lambda s: (_rank(s), s.served), default=None)

    def _suspend(self, sequence: Sequence) -> bool:
        """Save the request's cells and take its slot; return False if they cannot be saved: it goes on."""
        sequence.state = self._prefixes.save(sequence.slot)
        if sequence.state is None:
            return False
        self._target.close(sequence.slot)
        sequence.slot = NO_SLOT
        self.running.remove(sequence)
        self.waiting.append(sequence)
        return True

    def next(self) -> list[Sequence]:
        """Return the requests of the next step: one whose prompt is read, or all that share a round."""
        live = [s for s in self.running if not s.ended]
        if len(live) <= 1:
            return live
        now, best = time.monotonic(), min(map(_rank, live))
        late = [s for s in live if _rank(s) != best and (_is_late(s) or now - s.turn > self._patience(s))]
        first = min(late or [s for s in live if _rank(s) == best], key=lambda s: (s.served, s.id))
        if not first.prefilled or not self._may_share(first):
            return [first]
        decoding = [s for s in live if s.prefilled and self._may_share(s)]
        equals = [s for s in decoding if s.priority == first.priority]
        # All rows of a round are as wide as the widest: requests with drafts of similar length share one.
        width = first.account.width
        equals.sort(key=lambda s: (s is not first, abs(s.account.width - width), s.served, s.id))
        each = [self._seconds(equals[:n]) / n for n in range(1, len(equals) + 1)]
        group = equals[: each.index(min(each)) + 1]
        limit = JOINT_COST * self._seconds(group)
        for sequence in decoding:
            if sequence not in group and self._seconds([*group, sequence]) <= limit:
                group.append(sequence)
        return sorted(group, key=lambda s: s.slot)

    def _patience(self, sequence: Sequence) -> float:
        """Seconds that it waits for higher classes: a piece of its prompt at least, as they wait for that."""
        piece = 0.0 if sequence.prefilled else self._costs.seconds(sequence.chunk, len(sequence.tokens))
        return max(PATIENCE_S[sequence.priority], piece)

    def _may_share(self, sequence: Sequence) -> bool:
        """Return True if the request can share a round: the backend computes sequences together, and that
        changes no row of a strict request."""
        can = self._target.capabilities
        equal = can.exact_batches and can.exact_width == ANY_WIDTH
        return can.batches and (equal or not sequence.settings.strict)

    def _seconds(self, sequences: Seq[Sequence]) -> float:
        """The expected seconds of their round, in which a backend may compute the slots between, too."""
        slots = [s.slot for s in sequences]
        rows = max(slots) - min(slots) + 1 if self._target.capabilities.consecutive else len(slots)
        total = max(s.account.width for s in sequences) * rows
        line = self._costs.line(max(len(s.tokens) for s in sequences))
        return line[min(round(total), WIDE)]

    def charge(self, sequences: Seq[Sequence], seconds: float) -> None:
        """Charge ``seconds`` of machine time to the requests that were served together, in equal shares."""
        now = time.monotonic()
        for sequence in sequences:
            sequence.served += seconds / len(sequences)
            sequence.turn, sequence.passed = now, 0

    def retire(self, conclude: Callable[[Sequence], None]) -> None:
        """Remove requests that have ended, or are past their deadlines; ``conclude`` each of them."""
        now = time.monotonic()
        for book in (self.running, self.waiting):
            for sequence in tuple(book):
                if not sequence.ended:
                    if now < sequence.deadline:
                        continue
                    sequence.finish = "deadline"
                sequence.state = None
                if sequence.slot != NO_SLOT:
                    self._prefixes.keep(sequence)
                conclude(sequence)
                book.remove(sequence)


def _is_late(sequence: Sequence) -> bool:
    return sequence.passed >= PASSES[sequence.priority]


def _rank(sequence: Sequence) -> int:
    return CLASSES.index(sequence.priority)


class Stream:
    """The chunks of an answer, to iterate over; :attr:`result` is set when they end. Reading the stream runs
    the engine, in the same thread. Closing it, or dropping it before its end, cancels the request; so does
    Ctrl-C, which raises KeyboardInterrupt after the step under way."""

    def __init__(self, engine: Engine, sequence: Sequence) -> None:
        self._engine, self._sequence = engine, sequence
        self._result: Result | None = None
        self._ended = False

    @property
    def result(self) -> Result:
        """The result of the request, after the last chunk was read."""
        if self._result is None:
            message = "the stream has not ended: it has no result yet"
            raise LocalspecError(message, "Read it to its end, or call finish().")
        return self._result

    def __iter__(self) -> Iterator[Delta]:
        return (event for event in self.events() if isinstance(event, Delta))

    def events(self) -> Iterator[Event]:
        """Iterate over all events of the request, chunks included."""
        return iter(self._next, None)

    def finish(self) -> Result:
        """Read the rest and return the result; raises the error that ended the request."""
        for _ in self.events():
            pass
        return self.result

    def cancel(self) -> None:
        """End the request; its result has the finish reason ``cancelled`` and the text so far."""
        self._engine.cancel(self._sequence.id)

    def close(self) -> None:
        """Cancel the request if it has not ended, and drop it."""
        if not self._ended:
            self._ended = True
            self.cancel()
            with delay_interrupts():
                self._engine.step()

    def __del__(self) -> None:
        # Anywhere, also within another request's step: the next step drops the request.
        if not self._ended:
            self.cancel()

    def _next(self) -> Event | None:
        """The next event of the request, None after its end; raises the error that ended it."""
        while not self._ended and not self._sequence.events:
            try:
                with delay_interrupts():
                    goes_on = self._engine.step()
            except BaseException:
                self.close()
                raise
            if not goes_on and not self._sequence.events:
                self._ended = True
                raise EngineError("the engine ended without a result for this request; this is a defect")
        if self._ended:
            return None
        event = self._sequence.events.popleft()
        self._ended = isinstance(event, (Result, LocalspecError))
        if isinstance(event, LocalspecError):
            raise event
        if isinstance(event, Result):
            self._result = event
        return event


PATIENT = 3
"""times that a piece of a prompt is preempted before it is read in any case"""
LEARN_EVERY = 16
"""steps of a busy engine after which it learns for a millisecond"""
MOST_TRIED = 64
"""tools of a request whose schemas are tried one by one, after one of them was refused"""
OWN = 0
"""the number of an engine's own draft model"""
RELOAD = "Load the model again, then send the request again."


class Engine:
    """A target, its draft models, its proposers, and the requests that share them.

    Not thread-safe but for :meth:`encode` and :meth:`preempt`: one thread submits and steps. ``proposers``
    are the caller's own, selected by their names; ``learning`` is what earlier engines learnt. ``reason``
    says why target and draft model were chosen, ``needs`` is the planned memory, and ``placement`` the part
    on GPUs."""

    def __init__(
        self,
        target: Backend,
        draft: Backend | None = None,
        *,
        config: EngineConfig | None = None,
        options: Options | None = None,
        proposers: Seq[Proposer] = (),
        learning: Learning | None = None,
    ) -> None:
        config = config or EngineConfig()
        self.target, self.config, self.reason, self.needs = target, config, "", Needs()
        self.placement: Placement | None = None
        self.learning = learning or Learning(target)
        self.options = options or Options()
        capabilities, vocabulary = target.capabilities, target.vocabulary
        self._limits = SequenceLimits(capabilities.n_ctx, min(config.chunk, capabilities.max_batch))
        self._encoder = PromptEncoder(
            vocabulary,
            capabilities.n_ctx,
            trained_ctx=capabilities.trained_ctx,
            model=target.model,
            prefill_s=self.learning.costs.prefill_s,
        )
        self._grammars = Grammars(vocabulary)
        self._proposers = Proposers(EngineParts(target, None, config, self.learning), proposers)
        self._prefixes = Prefixes(target, self.learning.chats)
        self._scheduler = Scheduler(target, self.learning.costs, self._prefixes)
        self._idle = Idle(target, self.learning, self._prefixes, measures=config.idle_measuring)
        self._preemption = Preemption(target)
        self._ids = itertools.count(1)
        self._steps = 0
        self._closed = False
        self._drafts: dict[int | None, Backend] = {}
        if draft is not None:
            self.add_draft(draft)

    @property
    def draft(self) -> Backend | None:
        """The draft model of requests that name no other."""
        return self._drafts.get(OWN)

    def add_draft(self, draft: Backend, number: int = OWN) -> None:
        """Draft by this model, too, for the requests that are submitted with its number."""
        self._drafts[number] = draft
        self._proposers.add(number, draft)

    def drop_draft(self, number: int) -> None:
        """Free a draft model; its requests must have ended, or been cancelled."""
        self._scheduler.retire(self._conclude)
        draft = self._drafts.pop(number, None)
        if draft is not None:
            self._proposers.drop(number)
            self.learning.drop_draft(draft)
            draft.free()

    def generate(self, prompt: str, **options: Any) -> Stream:
        """Continue ``prompt`` as it is; ``options`` are the fields of :class:`Options`;
        ``schema`` may also be a type of msgspec's or a model of pydantic's."""
        return self.stream(Request(prompt=TextPrompt(prompt), options=_options(options)))

    def chat(self, messages: Iterable[Message | Mapping[str, str]], **options: Any) -> Stream:
        """Answer a conversation: ``[{"role": "user", "content": "…"}, …]``."""
        try:
            turns = msgspec.convert([msgspec.to_builtins(m) for m in messages], tuple[Message, ...])
        except msgspec.ValidationError as error:
            message = f"invalid chat message: {readable(error)}"
            raise InvalidOptions(message, "Give each message a role and content.") from None
        return self.stream(Request(prompt=ChatPrompt(turns), options=_options(options)))

    def complete(self, prefix: str, suffix: str, **options: Any) -> Result:
        """Return the text between ``prefix`` and ``suffix``, as an editor would show it."""
        prompt = FimPrompt(prefix, suffix, tidy=True, invoked=True)
        result = self.stream(Request(prompt=prompt, options=_options(options))).finish()
        return finished(result, Gap.of(prompt))

    def stream(self, request: Request) -> Stream:
        """Return a :class:`Stream` that runs ``request`` while it is read."""
        with delay_interrupts():
            return Stream(self, self.submit(request))

    def encode(
        self,
        request: Request,
        settings: RequestSettings | None = None,
        attempt: Attempt = lambda grammar: None,
    ) -> Encoded:
        """Return the tokens of a request's prompt and its constraint, whose grammar ``attempt`` may refuse.
        Another thread may call this while the engine steps. Raises what :meth:`submit` raises, except
        :class:`EngineError`."""
        encoded = self.read(request, settings)
        options, marked = request.options.over(self.options), encoded.marked
        grammar = grammar_of(options)
        if grammar is None and marked is None:
            return encoded
        begun = "" if grammar is None else begun_answer(request.prompt, marked)
        try:
            constraint = self._constraint(marked, grammar, begun, attempt)
        except InvalidOptions:
            if marked is None or not marked.form.tools:
                raise
            named = [tool for tool in marked.form.tools if marked.prompt.tool in (None, tool.name)]
            odd = [tool for tool in named[:MOST_TRIED] if self._refuses(marked, tool, attempt)] or named
            log.warning("schemas of tools that are not followed: %s", ", ".join(tool.name for tool in odd))
            pairs = zip(marked.form.tools, marked.loose.form.tools, strict=True)
            tools = tuple(loose if tool in odd else tool for tool, loose in pairs)
            marked = marked._replace(form=marked.form._replace(tools=tools))
            constraint = self._constraint(marked, grammar, begun, attempt)
        if options.think is None or marked is None or marked.form.thought is None:
            return encoded._replace(constraint=constraint)
        return encoded._replace(constraint=self._budget(options.think, marked, constraint))

    def read(self, request: Request, settings: RequestSettings | None = None) -> Encoded:
        """Return the same without the constraint, as for counting the tokens of a prompt."""
        settings = settings or self._settle(request)
        return self._encoder.encode(request.prompt, settings.max_tokens, settings.workspace, cut=settings.cut)

    def _constraint(
        self, marked: AnswerMarkup | None, answer: str | None, begun: str, attempt: Attempt
    ) -> Constraint | None:
        grammar = answer if marked is None else answer_grammar(marked, answer)
        return None if grammar is None else self._grammars.constraint(grammar, begun, attempt)

    def _refuses(self, marked: AnswerMarkup, tool: Tool, attempt: Attempt) -> bool:
        """Return True if the library refuses the schema of a tool: its arguments are then any JSON."""
        try:
            self._constraint(marked._replace(form=marked.form._replace(tools=(tool,))), None, "", attempt)
        except InvalidOptions:
            return True
        return False

    def _budget(self, most: int, marked: AnswerMarkup, inner: Constraint | None) -> Budget:
        vocabulary, form = self.target.vocabulary, marked.form
        opens, closes = (mark.strip() for mark in form.thought or ("", ""))
        # A tag stands in a line of its own; a model that was cut off may end without that.
        end = f"{closes}\n\n" if closes.startswith("</") else closes
        closing = tuple(vocabulary.encode(end, special=True))
        thoughts = Thoughts(opens.encode(), closes.encode(), closing, form.family.link.encode(), form.opened)
        return Budget(most, thoughts, marked.name_pieces(vocabulary.piece), vocabulary.size, inner)

    def _settle(self, request: Request) -> RequestSettings:
        return settle(request.options.over(self.options), request.prompt, self.target.defaults)

    def submit(
        self, request: Request, encode: Callable[[], Encoded] | None = None, draft: int | None = OWN
    ) -> Sequence:
        """Queue a request; :meth:`step` advances it and appends to its ``events``. ``encode`` returns the
        result of :meth:`encode` if that was called before; ``draft`` is the number of its draft model. Raises
        :class:`InvalidOptions`, :class:`ContextExceeded`, :class:`FimUnsupported`, and :class:`EngineError`
        after :meth:`close`."""
        if self._closed:
            raise EngineError(f"the engine of {self.target.model} is closed", RELOAD)
        self._idle.interrupt(remember=not self._scheduler.busy)
        settings = self._settle(request)
        number = draft if settings.drafts and draft in self._drafts else None
        self._proposers.check(settings.proposer, number)
        encoded = self.encode(request, settings) if encode is None else encode()
        vocabulary, obstacle = self.target.vocabulary, self.target.capabilities.obstacle
        sequence = Sequence(next(self._ids), request, settings, encoded, vocabulary, self._limits)
        sequence.draft = number
        if settings.proposer != "none" and obstacle:
            sequence.proposer, sequence.stats.speculation_off_reason = "none", obstacle
        self._scheduler.waiting.append(sequence)
        # The text of a background request may be a suggestion that the user has not accepted.
        is_written = settings.remember and request.priority != "background"
        if is_written and isinstance(request.prompt, FimPrompt) and request.prompt.tidy:
            self._idle.primer.read(request.prompt, settings.workspace)
        return sequence

    def teach(self, path: str, text: str, workspace: str | None = None) -> None:
        """Learn, when idle, a text that the user has accepted into the file at ``path``."""
        place = workspace_of_file(path) if workspace is None else workspace or None
        self._idle.primer.teach(path, place, text)

    def cancel(self, id: int) -> None:
        """End a request at the next step; its result has the text so far."""
        for sequence in self._scheduler.all:
            if sequence.id == id and not sequence.ended:
                sequence.finish = "cancelled"

    def step(self) -> bool:
        """Feed a piece of one prompt, or play a round; return False if no request is left."""
        if self._closed:
            return False
        scheduler, started = self._scheduler, time.perf_counter()
        # Requests leave before others are admitted: a newer completion takes over the cache of the one that
        # was cancelled for it.
        scheduler.retire(self._conclude)
        for suspended in scheduler.admit():
            self._proposers.stop(suspended)
        served = scheduler.next()
        if served and not served[0].prefilled:
            self._prefill(served[0])
        elif served:
            self._decode(served)
        if served:
            scheduler.charge(served, time.perf_counter() - started)
        self._steps += 1
        if self._steps % LEARN_EVERY == 0:
            self.learning.work()
        scheduler.retire(self._conclude)
        return scheduler.busy

    def rest(self) -> bool:
        """Do one small chore if there are no requests: learn, measure, or write to disk what was learnt and
        computed. Return True if there is more to do."""
        if self._closed or self._scheduler.busy:
            return False
        return self._idle.step()

    def preempt(self) -> None:
        """Preempt the piece of a prompt that is being read, because a completion came or a request was
        cancelled; from any thread. The piece is read later, and not preempted more than PATIENT times."""
        self._preemption.request()

    def forget(self, source: str) -> None:
        """Drop all that was computed for requests of ``source``, on disk too, and all that is still to be
        learnt from them."""
        for sequence in self._scheduler.all:
            sequence.forgotten |= sequence.source == source
        self._idle.forget(source)
        self._prefixes.forget(source)

    def close(self, *, free: bool = True) -> None:
        """End all requests with an error, write what was learnt to disk, and free the models. No method does
        anything after this. Without ``free`` the models stay, for a thread that is in :meth:`encode`, until
        the process exits."""
        if self._closed:
            return
        self._closed = True
        with delay_interrupts():
            message = f"the engine of {self.target.model} was closed before the request ended"
            for sequence in self._scheduler.all:
                sequence.error = EngineError(message, RELOAD)
                sequence.events.append(sequence.error)
            self._scheduler.running, self._scheduler.waiting = [], []
            self._idle.interrupt()
            self._idle.finish()
            self.learning.close()
            for model in (self.target, *self._drafts.values()) if free else ():
                model.free()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _prefill(self, sequence: Sequence) -> None:
        """Feed the next piece of the prompt; the last one gives the first token of the answer."""
        chunk, length = sequence.chunk, sequence.prompt_length
        if sequence.reports == "next step":
            sequence.reports = "all"
            sequence.events.append(Progress(length, sequence.cached, sequence.cached))
            return
        start = self.target.length(sequence.slot)
        end = min(start - start % chunk + chunk, length)
        answers = end == length and sequence.settings.max_tokens != 0
        preemptible = sequence.interruptions < PATIENT
        try:
            if start <= sequence.whole < end:
                # The next turn may start here.
                self.target.mark(sequence.slot)
            piece = Span(sequence.slot, sequence.tokens[start:end], int(answers))
            self.learning.costs.interrupt()
            with self._preemption.allow_preemption() if preemptible else nullcontext():
                logits = self.target.forward([piece])
            sequence.interruptions = 0
            sequence.wrote(start, end, exact=True)
            if length > chunk or sequence.reports == "all":
                sequence.events.append(Progress(length, sequence.cached, end))
            if answers:
                first = sequence.choose(TargetRows(ForwardRows(logits), 0))
                sequence.extend(first, exact=sequence.exact == length)
                if sequence.constraint:
                    sequence.force(sequence.find_forced())
                sequence.publish()
            elif end == length:
                sequence.finish = "length"
        except Interrupted:
            sequence.interruptions += 1
        except LocalspecError as error:
            sequence.error = error

    def _decode(self, sequences: Seq[Sequence]) -> None:
        """Play a round for all; if that fails, a round for each, so that only the failing request ends."""
        try:
            play_round(self.target, self._proposers, self.learning.costs, sequences)
        except LocalspecError as error:
            if len(sequences) == 1:
                sequences[0].error = error
                return
            for sequence in sequences:
                self._decode([sequence])

    def _conclude(self, sequence: Sequence) -> None:
        """Append the last events of a request."""
        self._proposers.stop(sequence)
        sequence.publish()
        draft = self._drafts.get(sequence.draft)
        read = sequence.channels and sequence.channels.parser
        finish = sequence.finish or "stop"
        result = Result(
            text=read.join_texts("answer") if read else sequence.text.text,
            finish_reason="tool_calls" if read and read.calls and finish == "stop" else finish,
            model=self.target.model,
            draft=None if draft is None else draft.model,
            backend=self.target.name,
            prompt_tokens=sequence.prompt_length,
            cached_tokens=sequence.cached,
            completion_tokens=sequence.completion_tokens,
            stats=sequence.account.close(
                sequence.completion_tokens, priced=self.learning.costs.knows(1, len(sequence.tokens))
            ),
            stop_text=sequence.text.stop,
            thinking=read.join_texts("thinking") if read else "",
            thinking_tokens=sequence.channels.thinking_tokens if sequence.channels else 0,
            tool_calls=read.calls if read else (),
        )
        sequence.events.append(sequence.error or result)
        self.learning.count(sequence.stats, draft)
        settings = sequence.settings
        is_ours = settings.remember and not (sequence.tidy or sequence.forgotten)
        if is_ours and sequence.prefilled:
            self.learning.remember(sequence.tokens, sequence.earlier, settings.workspace, sequence.source)


def _options(values: Mapping[str, Any]) -> Options:
    fields = dict(values)
    if isinstance(fields.get("stop"), str):
        fields["stop"] = [fields["stop"]]
    if isinstance(schema := fields.get("schema"), type):
        own = getattr(schema, "model_json_schema", partial(msgspec.json.schema, schema))
        fields["schema"] = own()
    return parse_options(fields)
