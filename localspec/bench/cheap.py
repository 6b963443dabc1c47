"""The proposers that need no model, alone: for the oracles and the simulator."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from localspec.bench.curve import CostLine
from localspec.bench.results import PLAIN
from localspec.bench.scratch import VOCABULARY, scratch_memory
from localspec.errors import InvalidOptions
from localspec.memory.lesson import Lesson
from localspec.memory.memory import Memory
from localspec.speculation.controller import Controller
from localspec.speculation.costs import CostCurve
from localspec.speculation.draft import Ask, Draft
from localspec.speculation.lookup import PromptLookup
from localspec.speculation.memory import MemoryRecall
from localspec.speculation.proposer import Nothing, Proposer
from localspec.speculation.survival import Calibration

Maker = Callable[[], Proposer]

KNOWN = 8
"""times a width was seen: enough to be taken for known"""


class Remembering(MemoryRecall):
    """The memory alone: learns a request's text when it ends, as the engine has it do."""

    def __init__(self, directory: Path) -> None:
        # Token ids are all there is; without their bytes no secret can be told from other text.
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
    """By name: what makes a new one that knows nothing yet. They work until the context ends."""
    with scratch_memory() as root, ExitStack() as stack:

        def remembering() -> Proposer:
            made = Remembering(Path(tempfile.mkdtemp(dir=root)))
            stack.callback(made.close)
            return made

        yield {"prompt-lookup": PromptLookup, "memory": remembering}


def controller_of(members: Sequence[Proposer], cost: CostLine, widths: Sequence[int]) -> Controller:
    """``auto`` over ``members``, which takes ``cost`` for measured at these widths."""
    curve = CostCurve()
    for _ in range(KNOWN):
        for width in widths:
            curve.observe(width, 0, cost(width))
    # Time passes on the curve only, or counts would depend on how busy this machine is.
    return Controller(members, curve, Calibration(), clock=lambda: 0.0)


def make_proposer(name: str, makers: Mapping[str, Maker], cost: CostLine) -> Proposer:
    """One of ``makers``, ``auto`` over all of them, or plain decoding.

    Raises :class:`InvalidOptions` for another name.
    """
    known: dict[str, Maker] = {
        PLAIN: Nothing,
        "auto": lambda: controller_of([make() for make in makers.values()], cost, range(1, 22)),
        **makers,
    }
    if name not in known:
        raise InvalidOptions(
            f"the proposer {name!r} cannot be simulated", f"Choose among: {', '.join(known)}."
        )
    return known[name]()
