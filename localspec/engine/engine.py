"""The engine: requests in, rounds, results out."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as Seq
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import msgspec

from localspec.backends.base import Backend, Interrupted, Span
from localspec.completion.finishing import finished
from localspec.completion.gap import Gap
from localspec.config import EngineConfig
from localspec.engine.events import RoundPlayed
from localspec.engine.exactness import first_token
from localspec.engine.hurry import Hurry
from localspec.engine.idle import Idle
from localspec.engine.learning import Learning
from localspec.engine.pieces import Pieces
from localspec.engine.priming import workspace_of_file
from localspec.engine.prompt import Encoded, PromptEncoder
from localspec.engine.proposers import Limits as ProposerLimits
from localspec.engine.proposers import assemble
from localspec.engine.round import play_round
from localspec.engine.scheduler import Scheduler
from localspec.engine.sequence import Limits, Sequence
from localspec.engine.settings import settle
from localspec.engine.stream import Stream
from localspec.errors import EngineError, InvalidOptions, LocalspecError, ModelChanged
from localspec.memory.lesson import Lesson
from localspec.models.rendering_process import RenderingProcess
from localspec.protocol.events import Progress
from localspec.protocol.options import Options, parse_options, readable
from localspec.protocol.requests import ChatPrompt, FimPrompt, Message, Request, TextPrompt
from localspec.protocol.results import Result
from localspec.speculation.draft_model import DraftModel
from localspec.speculation.lookup import PromptLookup
from localspec.speculation.memory import MemoryRecall
from localspec.speculation.proposer import Proposer
from localspec.speculation.rules import repetition

COMPLETION_CHUNK = 32
"""tokens of a completion's prompt per forward: short pieces only, of which most is taken over wherever a
keystroke changes it (:mod:`.pieces`)"""
PATIENT = 3
"""times that a piece of a prompt is given up for others' sake before it is read in any case"""
LEARN_EVERY = 16
"""steps between two in which a busy engine learns for a millisecond"""
LITTLE_REPETITION = "the prompt repeats too little (repetition_gate)"


class Engine:
    """A target, its proposers, and the requests that share them.

    Not thread-safe: one thread submits and steps. ``proposers`` adds proposers of your own, by their
    names; ``learning`` is what earlier engines learnt. ``reason`` says why this draft was paired;
    ``on_round`` is told of every round of every request.
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
        self.target, self.draft, self.reason = target, draft, ""
        self.learning = learning or Learning(target, draft)
        self.on_round: Callable[[RoundPlayed], None] | None = None
        self.options = options or Options()
        capabilities, vocabulary = target.capabilities, target.vocabulary
        self._limits = Limits(capabilities.n_ctx, min(config.prefill_chunk, capabilities.max_batch))
        self._encoder = PromptEncoder(
            vocabulary, capabilities.n_ctx, model=target.model, prefill_s=self.learning.costs.prefill_s
        )
        limits = ProposerLimits(
            vocabulary.size, target.rollback, capabilities.replays, config.disable_by_batch_size
        )
        members = _members(draft, vocabulary.size, config, self.learning)
        self._proposers = assemble(members, proposers, config, self.learning, limits)
        self._gate = config.repetition_gate
        self._scheduler = Scheduler(target, self.learning.costs, self.learning.chats)
        self._idle = Idle(target, draft, self.learning, self._scheduler)
        self._hurry = Hurry(target)
        self._ids = itertools.count(1)
        self._steps = 0
        self._closed = self._changing = False

    # One call per request.

    def generate(self, prompt: str, **options: Any) -> Stream:
        """Continue ``prompt`` as it is; ``options`` are the fields of :class:`Options`."""
        return self.stream(Request(prompt=TextPrompt(prompt), options=_options(options)))

    def chat(self, messages: Iterable[Message | Mapping[str, str]], **options: Any) -> Stream:
        """Answer a conversation: ``[{"role": "user", "content": "…"}, …]``."""
        try:
            turns = msgspec.convert([msgspec.to_builtins(m) for m in messages], tuple[Message, ...])
        except msgspec.ValidationError as error:
            raise InvalidOptions(f"invalid message: {readable(error)}", "Give role and content.") from None
        return self.stream(Request(prompt=ChatPrompt(turns), options=_options(options)))

    def complete(self, prefix: str, suffix: str, **options: Any) -> Result:
        """Fill in what stands between ``prefix`` and ``suffix``: what an editor would show."""
        prompt = FimPrompt(prefix, suffix, tidy=True, invoked=True)
        result = self.stream(Request(prompt=prompt, options=_options(options))).finish()
        return finished(result, Gap.of(prompt))

    def stream(self, request: Request) -> Stream:
        """Run ``request`` as it is read; see :class:`Stream`."""
        return Stream(self, self.submit(request))

    # Many requests at once.

    def encode(self, request: Request) -> Encoded:
        """The tokens of a request's prompt; may be asked for in another thread while this one steps.

        Raises what :meth:`submit` does, but for :class:`EngineError`.
        """
        settings = settle(request.options.over(self.options), request.prompt, self.target.defaults)
        return self._encoder.encode(request.prompt, settings.max_tokens, settings.workspace, cut=settings.cut)

    def submit(self, request: Request, encode: Callable[[], Encoded] | None = None) -> Sequence:
        """Queue a request; :meth:`step` advances it, its ``events`` tell how far. ``encode`` gives what
        :meth:`encode` has found, where it was asked before.

        Raises :class:`InvalidOptions`, :class:`ContextExceeded`, :class:`FimUnsupported`, and
        :class:`EngineError` after :meth:`close`.
        """
        if self._closed:
            raise EngineError("the engine was closed", "Load the model again.")
        with self._change():
            self._idle.interrupt()
        if not self._scheduler.busy:
            self._idle.remember()
        settings = settle(request.options.over(self.options), request.prompt, self.target.defaults)
        self._proposers.check(settings.proposer)
        encoded = self.encode(request) if encode is None else encode()
        capabilities = self.target.capabilities
        limits = self._limits
        if isinstance(request.prompt, FimPrompt):
            limits = limits._replace(chunk=min(COMPLETION_CHUNK, limits.chunk))
        sequence = Sequence(next(self._ids), encoded, settings, self.target.vocabulary, limits)
        sequence.stats.truncated_messages = encoded.dropped
        if settings.proposer != "none" and capabilities.obstacle:
            sequence.proposer, sequence.stats.speculation_off_reason = "none", capabilities.obstacle
        elif settings.proposer == "auto" and self._gate and repetition(encoded.tokens) < self._gate:
            sequence.proposer, sequence.stats.speculation_off_reason = "none", LITTLE_REPETITION
        sequence.limit(request)
        sequence.source = request.source
        sequence.priority = request.goes_as
        self._scheduler.add(sequence)
        # What is asked in the background may hold text that nobody has written yet.
        if sequence.tidy and settings.remember and request.priority != "background":
            self._idle.read(request.prompt, settings.workspace)
        return sequence

    def teach(self, path: str, text: str, workspace: str | None = None) -> None:
        """Learn at idle time what a person has accepted into the file at ``path``."""
        place = workspace_of_file(path) if workspace is None else workspace or None
        self._idle.teach(path, text, place)

    def cancel(self, id: int) -> None:
        """End a request at the next step; it still gives its result, with the text so far."""
        sequence = self._scheduler.find(id)
        if sequence is not None and not sequence.ended:
            sequence.finish = "cancelled"

    def step(self) -> bool:
        """A piece of somebody's prompt, or a round; False when there is nothing to do."""
        if self._closed:
            return False
        self._recover()
        with self._change():
            self._step()
        return self._scheduler.busy

    def _step(self) -> None:
        scheduler, started = self._scheduler, time.perf_counter()
        scheduler.expire()
        # First out, then in: what was cancelled for a newer completion leaves it the cache of its prompt.
        self._retire()
        for suspended in scheduler.admit():
            self._proposers.stop(suspended)
        served = scheduler.next()
        for sequence in served:
            sequence.sure = self.target.length(sequence.slot)
        if served and not served[0].prefilled:
            self._prefill(served[0])
        elif served:
            self._decode(served)
        for sequence in served:
            sequence.sure = None
        if served:
            scheduler.charge(served, time.perf_counter() - started)
        self._steps += 1
        if self._steps % LEARN_EVERY == 0:
            self._idle.learn()
        self._retire()

    def rest(self) -> bool:
        """Do one small thing that can wait while nobody asks: learn, measure, write down what was learnt
        and computed.

        Returns whether there is more to do.
        """
        if self._closed or self._scheduler.busy:
            return False
        self._recover()
        with self._change():
            return self._idle.step()

    def hurry(self) -> None:
        """From any thread: somebody who is not to wait has come, or gone. A piece of a prompt that is being
        read is given up, as often as is reasonable, and read later."""
        self._hurry.now()

    def prepare_chats(self, process: RenderingProcess) -> None:
        """Compile the chat template in a process that was started before the models were read."""
        self._encoder.prepare(process)

    def forget(self, source: str) -> None:
        """Give up all that was computed of a source, on disk too, and what was to be learnt of it."""
        with self._change():
            self._idle.forget(source)
            self._scheduler.forget(source)

    def close(self, *, free: bool = True) -> None:
        """End all requests with an error, write down what was learnt and free the models; nothing happens
        after this. Without ``free`` they are left to the process' exit, for a thread in :meth:`encode`."""
        if self._closed:
            return
        self._closed = True
        for sequence in self._scheduler.abandon():
            sequence.error = EngineError("the engine was closed", "Load the model again.")
            sequence.events.append(sequence.error)
        self._idle.interrupt()
        self._idle.finish()
        self.learning.close()
        self._encoder.close()
        for model in (self.target, self.draft):
            if free and model is not None:
                model.free()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The steps' parts.

    @contextmanager
    def _change(self) -> Iterator[None]:
        """Inside, slots change hands; where that is interrupted, the next step recovers."""
        before, self._changing = self._changing, True
        yield
        self._changing = before

    def _recover(self) -> None:
        """Put in order what a KeyboardInterrupt left half done, if one did."""
        if self._changing:
            self._idle.interrupt()
            self._hurry.reset()
            self._scheduler.recover()
            self._proposers.recover()
            self._changing = False

    def _prefill(self, sequence: Sequence) -> None:
        """Feed the next chunk of the prompt; the last one gives the first token of the answer."""
        pieces, length = Pieces(sequence.chunk, self.target.capabilities), sequence.prompt_length
        start, end = next(pieces.of(self.target.length(sequence.slot), length))
        sequence.exact = min(sequence.exact, start)
        last = end == length
        rows = int(last and sequence.settings.max_tokens != 0)
        try:
            if start <= min(pieces.lasting(length), length - 1) < end:
                # Where the next turn begins, and what a strict answer may have to come back to.
                self.target.mark(sequence.slot)
            with self._heeding(sequence):
                logits = self.target.forward([Span(sequence.slot, sequence.tokens[start:end], rows)])
            sequence.interruptions = 0
            if sequence.exact == start:
                sequence.exact = end
            if length > self._limits.chunk:
                sequence.events.append(Progress(length, sequence.cached, end))
            if rows:
                sequence.extend(first_token(sequence, logits))
                sequence.publish()
        except Interrupted:
            sequence.interruptions += 1
            return
        except LocalspecError as error:
            sequence.error = error
            return
        if last and not rows:
            sequence.finish = "length"

    def _heeding(self, sequence: Sequence) -> AbstractContextManager[None]:
        if sequence.interruptions >= PATIENT:
            return nullcontext()
        return self._hurry.heeded(self._scheduler.deadline)

    def _decode(self, sequences: Seq[Sequence]) -> None:
        """A round for all; where the batch fails, a round for each, so that only the culprit ends."""
        try:
            played = play_round(self.target, self._proposers, self.learning.costs, sequences)
        except LocalspecError as error:
            if len(sequences) == 1:
                sequences[0].error = error
                return
            for sequence in sequences:
                self._decode([sequence])
            return
        if self.on_round is not None:
            for each in played:
                self.on_round(each)

    def _retire(self) -> None:
        self._scheduler.retire(self._conclude)

    def _conclude(self, sequence: Sequence) -> None:
        """Append the last events of a request, unless an interrupted step has."""
        self._proposers.stop(sequence)
        if sequence.events and isinstance(sequence.events[-1], (Result, LocalspecError)):
            return
        try:
            self.target.check()
        except LocalspecError as error:
            sequence.error = sequence.error or error
        sequence.publish()
        sequence.events.append(sequence.error or self._result(sequence))
        self.learning.count(sequence.stats)
        is_spoilt = isinstance(sequence.error, ModelChanged)
        if sequence.remembered and not is_spoilt and self.learning.memory is not None:
            workspace = sequence.settings.workspace
            self.learning.memory.learn(Lesson(sequence.tokens, workspace, sequence.source))

    def _result(self, sequence: Sequence) -> Result:
        return Result(
            text=sequence.text.text,
            finish_reason=sequence.finish or "stop",
            model=self.target.model,
            draft=self.draft.model if self.draft is not None else None,
            backend=self.target.name,
            prompt_tokens=sequence.prompt_length,
            cached_tokens=sequence.cached,
            completion_tokens=sequence.completion_tokens,
            stats=sequence.final_stats(priced=self.learning.costs.knows(1, len(sequence.tokens))),
            stop_text=sequence.text.stop,
        )


def _members(
    draft: Backend | None, vocabulary_size: int, config: EngineConfig, learning: Learning
) -> list[Proposer]:
    """Who can draft here, the cheapest first."""
    members: list[Proposer] = [PromptLookup(n_min=config.ngram_min, n_max=config.ngram_max)]
    if learning.memory is not None:
        members.append(MemoryRecall(learning.memory.tables, learning.memory))
    if draft is not None:
        members.append(DraftModel(draft, vocabulary_size, learning.draft_costs))
    return members


def _options(values: Mapping[str, Any]) -> Options:
    said = dict(values)
    if isinstance(said.get("stop"), str):
        said["stop"] = [said["stop"]]
    return parse_options(said)
