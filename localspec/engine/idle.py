"""The chores of an engine without requests: it measures, learns files, and writes the results to disk."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator

import psutil

from localspec.backends.base import WIDTHS, Backend, Probe, Rounding, set_rounding
from localspec.engine.learning import Learning
from localspec.engine.prefixes import GROWTH, Prefixes
from localspec.engine.primer import Primer
from localspec.errors import EngineBusy, LocalspecError
from localspec.speculation.costs import CostCurve

REMEMBER_S = 0.02
"""the most seconds that a request waits while the texts of earlier ones are learnt"""

log = logging.getLogger(__name__)
STOPPED = object()


def on_battery() -> bool:
    battery = getattr(psutil, "sensors_battery", lambda: None)()
    return battery is not None and battery.power_plugged is False


class Idle:
    """The chores of an engine, in small steps; ``measures``: the target, if it is not known, among them. Over
    nodes it is measured after each load, as the network may be another one."""

    def __init__(self, target: Backend, learning: Learning, prefixes: Prefixes, *, measures: bool) -> None:
        self._target, self._learning, self._prefixes = target, learning, prefixes
        self.primer = Primer(learning.memory, target.vocabulary)
        known = learning.rounding.measured is not None and learning.costs.knows(max(WIDTHS), 0)
        unknown = measures and not (known and not learning.nodes) and not target.capabilities.obstacle
        self._costs = CostCurve(target.description) if learning.nodes else learning.costs
        self._probe = Probe(target, self._costs.observe) if unknown else None
        self._measuring: Generator[None, None, Rounding] | None = None
        self._writing: Generator[None, None, None] | None = None
        self._saved = True

    def step(self) -> bool:
        """Do one small step; return True if there is more to do."""
        if self._learning.work() or self.primer.work() or self._write_chat() or self._measure():
            return True
        if not self._saved:
            self._saved = True
            self._learning.save()
        return False

    def _write_chat(self, growth: float = GROWTH) -> bool:
        """Write some of a chat's cache to disk; return False if all are written that have grown so much."""
        self._writing = self._writing or self._prefixes.write_chat(growth)
        if self._writing is None:
            return False
        if next(self._writing, STOPPED) is STOPPED:
            self._writing = None
        return True

    def forget(self, source: str) -> None:
        """Drop the texts of ``source`` that are to be learnt. A cache that is being written may belong to it:
        stop that; if it does not, it is written again later."""
        self.primer.forget(source)
        if self._learning.memory is not None:
            self._learning.memory.forget(source)
        if self._writing is not None:
            self._writing.close()
            self._writing = None

    def finish(self) -> None:
        """At the end of the engine, write all chats."""
        while self._write_chat(1.0):
            pass

    def interrupt(self, *, remember: bool = False) -> None:
        """Stop a measurement and free its sequence, for a request; it continues later where it was. With
        ``remember``, learn queued texts for up to :data:`REMEMBER_S`: the request may be about them."""
        self._saved = False
        if self._measuring is not None:
            self._measuring.close()
            self._measuring = None
        until = time.perf_counter() + REMEMBER_S
        while remember and self._learning.work() and time.perf_counter() < until:
            pass

    def _measure(self) -> bool:
        """Do one step of the target's measurement; return False if there is none, no sequence for it, or no
        mains: it begins again after the next request."""
        if self._probe is None or (self._measuring is None and on_battery()):
            return False
        self._measuring = self._measuring or self._probe.steps()
        try:
            next(self._measuring)
        except StopIteration as end:
            self._learning.rounding.measured = end.value
            if self._costs is not self._learning.costs:
                self._learning.costs.restore(self._costs.state())
            set_rounding(self._target, end.value)
            self._probe, self._saved = None, False
        except EngineBusy:
            self._measuring = None
            return self._prefixes.lay_aside()
        except LocalspecError as error:
            log.warning("a measurement of the model failed: %s", error.message)
            self._probe = None
        return True
