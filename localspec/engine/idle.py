"""What an engine does while nobody waits for an answer: it learns, measures, and writes it down."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path

from localspec.backends.base import Backend, Span
from localspec.backends.rounding import rounding_steps, set_rounding
from localspec.engine.learning import Learning
from localspec.engine.priming import Primer
from localspec.engine.scheduler import Scheduler
from localspec.errors import EngineBusy, EngineError, LocalspecError
from localspec.protocol.requests import FimPrompt, Prompt
from localspec.speculation.costs import CostCurve, measured_widths

CONTEXT = 512
"""tokens of context behind the forwards that are measured"""
TIMES = 3
ENOUGH_S = 6.0
"""on a slow model each width is measured only twice"""
WIDEST = 21
PIECE = 32
"""tokens of that context fed at once: a request that comes waits for no more"""
FINISH_S = 2.0
"""that the end of an engine takes to read files that wait to be learnt, at most"""
REMEMBER_S = 0.02
"""how long a request may wait for what earlier ones said to be learnt"""


log = logging.getLogger(__name__)

STOPPED = object()

Chore = Callable[[], Generator[None, None, None]]


class Idle:
    """The chores of an engine, in small steps."""

    def __init__(
        self, target: Backend, draft: Backend | None, learning: Learning, scheduler: Scheduler
    ) -> None:
        self._learning, self._scheduler = learning, scheduler
        self._todo: list[Chore] = [partial(measure_costs, target, learning.costs)]
        if draft is not None and learning.draft_costs is not None:
            self._todo.append(partial(measure_costs, draft, learning.draft_costs, widest=1))
        if learning.keeps and learning.rounding.measured is None and not target.capabilities.obstacle:
            self._todo.insert(0, self._measure_rounding)
        self._target = target
        self._primer = None if learning.memory is None else Primer(learning.memory, target.vocabulary)
        self._measuring: Generator[None, None, None] | None = None
        self._writing: Generator[None, None, None] | None = None
        self._saved = True

    def step(self) -> bool:
        """Do one thing; returns whether there is more."""
        memory = self._learning.memory
        if memory is not None and memory.work():
            return True
        if self._primer is not None and self._primer.work():
            return True
        # Before a measurement, which may need the place of a chat.
        if self._write_chat() or self._measure():
            return True
        if not self._saved:
            self._saved = True
            self._learning.save()
        return False

    def _write_chat(self) -> bool:
        """Write some of a chat's cache to disk; False if all are there."""
        if self._writing is None:
            self._writing = self._scheduler.save_chat()
        if self._writing is None:
            return False
        if next(self._writing, STOPPED) is STOPPED:
            self._writing = None
        return True

    def forget(self, source: str) -> None:
        """What waits to be learnt of a source never will be. What is being written may be of it; if
        not, it is written anew."""
        if self._primer is not None:
            self._primer.forget(source)
        if self._learning.memory is not None:
            self._learning.memory.forget(source)
        if self._writing is not None:
            self._writing.close()
            self._writing = None

    def read(self, prompt: Prompt, workspace: str | None) -> None:
        """Learn the files of a gap later; see :meth:`Primer.read`."""
        if self._primer is not None and isinstance(prompt, FimPrompt):
            self._primer.read(prompt, workspace)

    def teach(self, path: str, text: str, workspace: str | None) -> None:
        """Learn a piece of a file later."""
        if self._primer is not None:
            self._primer.teach(path, text, workspace)

    def learn(self) -> None:
        """Learn for about a millisecond."""
        if self._learning.memory is not None:
            self._learning.memory.work()

    def finish(self) -> None:
        """The engine ends: learn what waits as long as :data:`FINISH_S` lasts, and write down the chats."""
        until = time.perf_counter() + FINISH_S
        while self._primer is not None and self._primer.work():
            if time.perf_counter() >= until:
                log.warning("not all files that were opened are learnt: there was no time at the end")
                break
        while self._write_chat():
            pass

    def interrupt(self) -> None:
        """A request comes: free what a measurement uses. It is begun again later."""
        self._saved = False
        if self._measuring is not None:
            self._measuring.close()
            self._measuring = None

    def remember(self) -> None:
        """Learn of the texts that wait what little time allows: the next request may be about them."""
        memory, until = self._learning.memory, time.perf_counter() + REMEMBER_S
        while memory is not None and memory.work() and time.perf_counter() < until:
            pass

    def _measure_rounding(self) -> Generator[None, None, None]:
        found = yield from rounding_steps(self._target)
        self._learning.rounding.measured = found
        set_rounding(self._target, found)

    def _measure(self) -> bool:
        if not self._todo:
            return False
        if self._measuring is None:
            self._measuring = self._todo[0]()
        try:
            next(self._measuring)
        except StopIteration:
            del self._todo[0]
            self._measuring, self._saved = None, False
        except EngineBusy:
            # Caches of earlier requests hold all sequences.
            self._measuring = None
            return self._scheduler.prefixes.evict()
        except LocalspecError as error:
            log.warning("measuring was given up: %s", error.message)
            del self._todo[0]
            self._measuring = None
        return True


def measure_costs(backend: Backend, costs: CostCurve, *, widest: int = WIDEST) -> Generator[None, None, None]:
    """A step per forward: widths up to ``widest`` that are not known yet, each beside a 1-wide forward,
    because the machine may be faster now and slower then. Closing it frees what it used.

    Raises :class:`EngineBusy` where no sequence is free.
    """
    limits = backend.capabilities
    n = min(CONTEXT, limits.n_ctx - widest - 1)
    widths = [width for width in measured_widths(min(widest, limits.max_batch)) if not costs.knows(width, n)]
    if n < 1 or (costs.knows(1, n) and not widths):
        return
    text = backend.vocabulary.encode(Path(__file__).read_text(encoding="utf-8"), special=False)
    tokens = [text[i % len(text)] for i in range(n + widest)]
    sequence = backend.open()
    try:
        chunk = min(PIECE, limits.max_batch)
        for at in range(0, n, chunk):
            backend.forward([Span(sequence, tokens[at : min(at + chunk, n)], 0)])
            yield
        backend.mark(sequence)
        yield from _rounds(backend, costs, sequence, (tokens, n, widths))
    finally:
        backend.close(sequence)


def _rounds(
    backend: Backend, costs: CostCurve, sequence: int, what: tuple[list[int], int, list[int]]
) -> Generator[None, None, None]:
    tokens, n, widths = what
    started = time.perf_counter()
    for again in range(TIMES):
        if again == TIMES - 1 and time.perf_counter() - started > ENOUGH_S:
            return
        for width in (*widths, 1):
            for each in dict.fromkeys((1, width)):
                _forward(backend, costs, sequence, tokens[n : n + each])
                if backend.truncate(sequence, n) < n:
                    raise EngineError("the cache cannot go back to where a forward began")
                yield


def _forward(backend: Backend, costs: CostCurve, sequence: int, tokens: list[int]) -> None:
    context = backend.length(sequence)
    started = time.perf_counter()
    backend.forward([Span(sequence, tokens, len(tokens))]).argmax()
    costs.observe(len(tokens), context, time.perf_counter() - started)
