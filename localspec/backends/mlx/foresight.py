"""Plain steps that are begun before they are asked for: the device need not wait for Python.

Between two forwards Python looks at a token, remembers it, and builds the next graph, some milliseconds
for a model with many layers, in which the device would have nothing to do. In plain greedy decoding the
next token is the one that the last row says; mlx-lm hands it on without reading it, and so do we, once
enough steps went that way. If another token is fed after all, or several, what was begun is forgotten: its
cell is written over, its states were never taken. But the device has lost a step, which a dozen must make
up for: after each such loss twice as many steps have to go that way.
"""

from __future__ import annotations

from collections.abc import Sequence

from localspec.backends.mlx.layers import State
from localspec.backends.mlx.logits import MlxLogits
from localspec.backends.mlx.slot import Slot

STREAK = 12
"""plain steps with the most probable token, one after another, until the next one is begun ahead"""


Computed = tuple[list[Sequence[State]], MlxLogits]
"""the result of one forward: the new states of each sequence, and the rows of logits"""


class Foresight:
    """What was begun for the step to come; ``possible``: whether states can be left untaken."""

    def __init__(self, possible: bool) -> None:
        self._possible = possible
        self._last: tuple[Slot, int, MlxLogits] | None = None
        self._begun: Computed | None = None
        """the step behind the last one"""
        self._streak, self._wanted = 0, STREAK

    def take(self, slot: Slot, token: int | None) -> Computed | None:
        """What was begun, if this is the step: ``token`` behind what ``slot`` holds; None: any other."""
        begun, self._begun = self._begun, None
        last, self._last = self._last, None
        goes_on = last is not None and last[:2] == (slot, slot.length)
        if not goes_on or token is None or last is None or last[2].were_seen or last[2].argmax() != [token]:
            self._streak = 0
            # The end of a request is nobody's loss.
            self._wanted *= 1 + (goes_on and begun is not None)
            return None
        self._streak += 1
        return begun

    def is_due(self, slot: Slot, token: int | None, logits: MlxLogits) -> bool:
        """After a forward: whether the next step is to be begun. ``token``: see :meth:`take`."""
        if token is None or not self._possible:
            return False
        self._last = slot, slot.length, logits
        return self._streak >= self._wanted

    def keep(self, states: list[Sequence[State]], logits: MlxLogits) -> None:
        """The step behind the last one was begun."""
        self._begun = states, logits

    def forget(self) -> None:
        """A sequence is gone."""
        self._begun = self._last = None
        self._streak, self._wanted = 0, STREAK
