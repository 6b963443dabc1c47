"""The engine: it takes requests, advances them step by step, and gives their results."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Seq
from contextlib import nullcontext
from typing import Any

import msgspec

from localspec.backends.base import Backend, Interrupted, Span
from localspec.completion.finishing import finished
from localspec.completion.gap import Gap
from localspec.engine.idle import Idle
from localspec.engine.learning import Learning
from localspec.engine.preemption import Preemption
from localspec.engine.prefixes import Prefixes
from localspec.engine.priming import workspace_of_file
from localspec.engine.prompt import Encoded, PromptEncoder
from localspec.engine.proposers import Parts, Proposers
from localspec.engine.round import play_round
from localspec.engine.scheduler import Scheduler
from localspec.engine.sequence import Limits, Sequence
from localspec.engine.settings import Settings, settle
from localspec.engine.stream import Stream
from localspec.errors import EngineError, InvalidOptions, LocalspecError
from localspec.interrupt import delayed
from localspec.models.fit import Needs
from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.events import Progress
from localspec.protocol.options import Options, parse_options, readable
from localspec.protocol.requests import ChatPrompt, FimPrompt, Message, Request, TextPrompt
from localspec.protocol.results import Result
from localspec.speculation.proposer import Proposer
from localspec.speculation.verify import ForwardRows, TargetRows

PATIENT = 3
"""times that a piece of a prompt is preempted before it is read in any case"""
LEARN_EVERY = 16
"""steps of a busy engine after which it learns for a millisecond"""
OWN = 0
"""the number of an engine's own draft model"""
RELOAD = "Load the model again, then send the request again."


class Engine:
    """A target, its draft models, its proposers, and the requests that share them.

    Not thread-safe but for :meth:`encode` and :meth:`preempt`: one thread submits and steps. ``proposers``
    are the caller's own, selected by their names; ``learning`` is what earlier engines learnt. ``reason``
    says why target and draft model were chosen, and ``needs`` is the planned memory.
    """

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
        self.learning = learning or Learning(target)
        self.options = options or Options()
        capabilities, vocabulary = target.capabilities, target.vocabulary
        self._limits = Limits(capabilities.n_ctx, min(config.chunk, capabilities.max_batch))
        self._encoder = PromptEncoder(
            vocabulary,
            capabilities.n_ctx,
            trained_ctx=capabilities.trained_ctx,
            model=target.model,
            prefill_s=self.learning.costs.prefill_s,
        )
        self._proposers = Proposers(Parts(target, None, config, self.learning), proposers)
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

    # One call per request.

    def generate(self, prompt: str, **options: Any) -> Stream:
        """Continue ``prompt`` as it is; ``options`` are the fields of :class:`Options`."""
        return self.stream(Request(prompt=TextPrompt(prompt), options=_options(options)))

    def chat(self, messages: Iterable[Message | Mapping[str, str]], **options: Any) -> Stream:
        """Answer a conversation: ``[{"role": "user", "content": "…"}, …]``."""
        try:
            turns = msgspec.convert([msgspec.to_builtins(m) for m in messages], tuple[Message, ...])
        except msgspec.ValidationError as error:
            raise InvalidOptions(
                f"invalid chat message: {readable(error)}", "Give each message a role and content."
            ) from None
        return self.stream(Request(prompt=ChatPrompt(turns), options=_options(options)))

    def complete(self, prefix: str, suffix: str, **options: Any) -> Result:
        """Return the text between ``prefix`` and ``suffix``, as an editor would show it."""
        prompt = FimPrompt(prefix, suffix, tidy=True, invoked=True)
        result = self.stream(Request(prompt=prompt, options=_options(options))).finish()
        return finished(result, Gap.of(prompt))

    def stream(self, request: Request) -> Stream:
        """Return a :class:`Stream` that runs ``request`` while it is read."""
        with delayed():
            return Stream(self, self.submit(request))

    # Many requests at once.

    def encode(self, request: Request, settings: Settings | None = None) -> Encoded:
        """Return the tokens of a request's prompt. Another thread may call this while the engine steps.

        Raises what :meth:`submit` raises, except :class:`EngineError`.
        """
        settings = settings or self._settle(request)
        return self._encoder.encode(request.prompt, settings.max_tokens, settings.workspace, cut=settings.cut)

    def _settle(self, request: Request) -> Settings:
        return settle(request.options.over(self.options), request.prompt, self.target.defaults)

    def submit(
        self, request: Request, encode: Callable[[], Encoded] | None = None, draft: int | None = OWN
    ) -> Sequence:
        """Queue a request; :meth:`step` advances it and appends to its ``events``. ``encode`` returns the
        result of :meth:`encode` if that was called before; ``draft`` is the number of its draft model.

        Raises :class:`InvalidOptions`, :class:`ContextExceeded`, :class:`FimUnsupported`, and
        :class:`EngineError` after :meth:`close`.
        """
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
        with delayed():
            for sequence in self._scheduler.abandon():
                sequence.error = EngineError(
                    f"the engine of {self.target.model} was closed before the request ended", RELOAD
                )
                sequence.events.append(sequence.error)
            self._idle.interrupt()
            self._idle.finish()
            self.learning.close()
            for model in (self.target, *self._drafts.values()) if free else ():
                model.free()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The parts of a step.

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
            with self._preemption.allowed(self._scheduler.deadline) if preemptible else nullcontext():
                piece = Span(sequence.slot, sequence.tokens[start:end], int(answers))
                logits = self.target.forward([piece])
            sequence.interruptions = 0
            sequence.wrote(start, end, exact=True)
            if length > chunk or sequence.reports == "all":
                sequence.events.append(Progress(length, sequence.cached, end))
            if answers:
                rows = TargetRows(ForwardRows(logits), 0)
                sequence.extend(sequence.choose(rows), exact=sequence.exact == length)
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
        result = Result(
            text=sequence.text.text,
            finish_reason=sequence.finish or "stop",
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
        )
        sequence.events.append(sequence.error or result)
        self.learning.count(sequence.stats, draft)
        is_ours = sequence.settings.remember and not (sequence.tidy or sequence.forgotten)
        if is_ours and sequence.prefilled:
            self.learning.remember(sequence.tokens, sequence.settings.workspace, sequence.source)


def _options(values: Mapping[str, Any]) -> Options:
    fields = dict(values)
    if isinstance(fields.get("stop"), str):
        fields["stop"] = [fields["stop"]]
    return parse_options(fields)
