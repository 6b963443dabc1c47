"""The chores of an engine without requests: it learns, measures, and writes the results to disk."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path

from localspec.backends.base import Backend, Span
from localspec.backends.rounding import WIDTHS, Probe, set_rounding
from localspec.engine.learning import Learning
from localspec.engine.priming import Primer
from localspec.engine.scheduler import Scheduler
from localspec.errors import EngineBusy, LocalspecError
from localspec.protocol.requests import FimPrompt, Prompt
from localspec.speculation.costs import CostCurve

TIMES = 3
"""forwards of a draft model that are timed"""
FINISH_S = 2.0
"""the most seconds that an engine spends at its end on files that are still to be learnt"""
REMEMBER_S = 0.02
"""the most seconds that a request waits while the texts of earlier ones are learnt"""


log = logging.getLogger(__name__)

STOPPED = object()

Chore = Callable[[], Generator[None, None, None]]


class Idle:
    """The chores of an engine, in small steps."""

    def __init__(
        self,
        target: Backend,
        learning: Learning,
        scheduler: Scheduler,
        *,
        measures: bool,
    ) -> None:
        self._learning, self._scheduler, self._target = learning, scheduler, target
        self._measures = measures
        self._todo = self._measurements() if measures else {}
        self._primer = None if learning.memory is None else Primer(learning.memory, target.vocabulary)
        self._measuring: Generator[None, None, None] | None = None
        self._writing: Generator[None, None, None] | None = None
        self._saved = True

    def _measurements(self) -> dict[Backend, Chore]:
        """The measurement of each model that is not known."""
        target, learning = self._target, self._learning
        known = learning.rounding.measured is not None and learning.costs.knows(max(WIDTHS), 0)
        if known or target.capabilities.obstacle:
            return {}
        return {target: partial(self._measure_target, Probe(target, learning.costs.observe))}

    def add_draft(self, draft: Backend) -> None:
        """Measure a draft model, too."""
        if self._measures:
            self._todo[draft] = partial(measure_step, draft, self._learning.know_draft(draft).costs)

    def drop_draft(self, draft: Backend) -> None:
        """Leave a draft model alone that is to be freed."""
        self.interrupt()
        self._todo.pop(draft, None)

    def step(self) -> bool:
        """Do one small step; return True if there is more to do."""
        memory = self._learning.memory
        if memory is not None and memory.work():
            return True
        if self._primer is not None and self._primer.work():
            return True
        if self._write_chat() or self._measure():
            return True
        if not self._saved:
            self._saved = True
            self._learning.save()
        return False

    def _write_chat(self) -> bool:
        """Write some of a chat's cache to disk; return False if all are written."""
        if self._writing is None:
            self._writing = self._scheduler.save_chat()
        if self._writing is None:
            return False
        if next(self._writing, STOPPED) is STOPPED:
            self._writing = None
        return True

    def forget(self, source: str) -> None:
        """Drop the texts of ``source`` that are to be learnt. A cache that is being written may belong to it:
        stop that; if it does not, it is written again later."""
        if self._primer is not None:
            self._primer.forget(source)
        if self._learning.memory is not None:
            self._learning.memory.forget(source)
        if self._writing is not None:
            self._writing.close()
            self._writing = None

    def read(self, prompt: Prompt, workspace: str | None) -> None:
        """Queue the files of a gap to be learnt; see :meth:`Primer.read`."""
        if self._primer is not None and isinstance(prompt, FimPrompt):
            self._primer.read(prompt, workspace)

    def teach(self, path: str, text: str, workspace: str | None) -> None:
        """Queue a piece of a file to be learnt."""
        if self._primer is not None:
            self._primer.teach(path, text, workspace)

    def learn(self) -> None:
        """Learn for about a millisecond."""
        if self._learning.memory is not None:
            self._learning.memory.work()

    def finish(self) -> None:
        """At the end of the engine, learn queued files for up to :data:`FINISH_S`, and write all chats."""
        until = time.perf_counter() + FINISH_S
        while self._primer is not None and self._primer.work():
            if time.perf_counter() >= until:
                log.warning("some opened files were not learnt: the engine's end left no time for them")
                break
        while self._write_chat():
            pass

    def interrupt(self) -> None:
        """Stop a measurement and free its sequence, for a request; it continues later where it was."""
        self._saved = False
        if self._measuring is not None:
            self._measuring.close()
            self._measuring = None

    def remember(self) -> None:
        """Learn queued texts for up to :data:`REMEMBER_S`, because the next request may be about them."""
        memory, until = self._learning.memory, time.perf_counter() + REMEMBER_S
        while memory is not None and memory.work() and time.perf_counter() < until:
            pass

    def _measure_target(self, probe: Probe) -> Generator[None, None, None]:
        found = yield from probe.steps()
        self._learning.rounding.measured = found
        set_rounding(self._target, found)

    def _measure(self) -> bool:
        if not self._todo:
            return False
        first = next(iter(self._todo))
        if self._measuring is None:
            self._measuring = self._todo[first]()
        try:
            next(self._measuring)
        except StopIteration:
            del self._todo[first]
            self._measuring, self._saved = None, False
        except EngineBusy:
            self._measuring = None
            return self._scheduler.prefixes.lay_aside()
        except LocalspecError as error:
            log.warning("a measurement of the model failed: %s", error.message)
            del self._todo[first]
            self._measuring = None
        return True


def measure_step(backend: Backend, costs: CostCurve) -> Generator[None, None, None]:
    """Measure the cost of a draft model's 1-wide forward, if it is not known yet, a forward per step. Closing
    the generator frees its sequence.

    Raises :class:`EngineBusy` if no sequence is free.
    """
    if costs.knows(1, 0):
        return
    text = backend.vocabulary.encode(Path(__file__).read_text(encoding="utf-8"), special=False)
    sequence = backend.open()
    try:
        for at, token in enumerate(text[:TIMES]):
            started = time.perf_counter()
            backend.forward([Span(sequence, [token], 1)]).argmax()
            costs.observe(1, at, time.perf_counter() - started)
            yield
    finally:
        backend.close(sequence)
