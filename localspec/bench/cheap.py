"""The proposers that need no model, for the oracles and the simulator."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from localspec.backends.toy import ToyBackend
from localspec.bench.curve import CostLine
from localspec.bench.results import PLAIN
from localspec.bench.scratch import VOCABULARY, scratch_memory
from localspec.engine.factories import Parts, make
from localspec.engine.learning import Learning
from localspec.errors import InvalidOptions
from localspec.memory.lesson import Lesson
from localspec.memory.memory import Memory
from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.proposer_kinds import AUTO, KINDS, MEMORY, ProposerKind
from localspec.speculation.controller import Controller
from localspec.speculation.costs import CostCurve
from localspec.speculation.draft import Ask, Draft
from localspec.speculation.memory import MemoryRecall
from localspec.speculation.proposer import Nothing, Proposer
from localspec.speculation.survival import Calibration

Maker = Callable[[], Proposer]

KNOWN = 8
"""observations of a width after which its cost counts as measured"""


class Remembering(MemoryRecall):
    """The n-gram memory alone, which learns a request's text at its end, as in the engine."""

    def __init__(self, directory: Path) -> None:
        # There are only token ids; without their bytes secrets cannot be recognised.
        self._memory = Memory(directory, VOCABULARY, lambda token: b" ")
        super().__init__(self._memory.tables, self._memory)
        self._contexts: dict[int, list[int]] = {}

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        for ask in asks:
            self._contexts[ask.request] = ask.context
        return super().propose(asks)

    def stop(self, request: int) -> None:
        super().stop(request)
        context = self._contexts.pop(request, None)
        if context is not None:
            self._memory.learn(Lesson(list(context), None, "bench"))
            while self._memory.work():
                pass

    def close(self) -> None:
        """Unmap the tables."""
        self._memory.close()


@contextmanager
def cheap_makers() -> Iterator[Mapping[str, Maker]]:
    """Functions by name that make a new, empty proposer; it can be used until the context ends."""
    with scratch_memory() as root, ExitStack() as stack:

        def remembering() -> Proposer:
            made = Remembering(Path(tempfile.mkdtemp(dir=root)))
            stack.callback(made.close)
            return made

        target = ToyBackend()
        parts = Parts(target, None, EngineConfig(), Learning(target, None))
        yield {
            kind.name: remembering if kind is MEMORY else partial(_made, kind, parts)
            for kind in KINDS
            if kind is MEMORY or kind.needs == "nothing"
        }


def _made(kind: ProposerKind, parts: Parts) -> Proposer:
    made = make(kind, parts)
    assert made is not None  # it needs nothing
    return made


def controller_of(members: Sequence[Proposer], cost: CostLine, widths: Sequence[int]) -> Controller:
    """``auto`` over ``members``, with ``cost`` as measured at these widths."""
    curve = CostCurve()
    for _ in range(KNOWN):
        for width in widths:
            curve.observe(width, 0, cost(width))
    # Time is that of the curve alone; else counts would depend on the load of this machine.
    return Controller(members, curve, Calibration(), clock=lambda: 0.0)


def make_proposer(name: str, makers: Mapping[str, Maker], cost: CostLine) -> Proposer:
    """One of ``makers``, ``auto`` over all of them, or plain decoding.

    Raises :class:`InvalidOptions` for another name.
    """
    known: dict[str, Maker] = {
        PLAIN: Nothing,
        AUTO: lambda: controller_of([make() for make in makers.values()], cost, range(1, 22)),
        **makers,
    }
    if name not in known:
        raise InvalidOptions(
            f"the proposer {name!r} cannot be simulated", f"Choose among: {', '.join(known)}."
        )
    return known[name]()
