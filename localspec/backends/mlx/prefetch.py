"""Plain steps that are begun before they are requested, so that the device does not wait for Python.

Between two forwards Python reads a token, records it, and builds the next graph: some milliseconds for a
model with many layers, in which the device would be idle. In plain greedy decoding the next token is the
argmax of the last row; mlx-lm feeds it without reading it, and so does this module, after ``STREAK`` such
steps in a row. If another token is fed after all, or several, the step begun is dropped: its cell is written
over, and its states are not used. The device has then lost a step, which a dozen must make up for, so each
loss doubles the number of steps required before the next prefetch.
"""

from __future__ import annotations

from collections.abc import Sequence

from localspec.backends.mlx.layers import State
from localspec.backends.mlx.logits import MlxLogits
from localspec.backends.mlx.slot import Slot

STREAK = 12
"""plain steps with the most probable token, one after another, before the next one is prefetched"""


Computed = tuple[list[Sequence[State]], MlxLogits]
"""the result of one forward: the new states of each sequence, and the rows of logits"""


class StepPrefetch:
    """The step begun ahead, if any; ``possible``: False if states change in place: no step can be dropped."""

    def __init__(self, possible: bool) -> None:
        self._possible = possible
        self._last: tuple[Slot, int, MlxLogits] | None = None
        self._begun: Computed | None = None
        """the result of the step after the last one"""
        self._streak, self._wanted = 0, STREAK

    def take(self, slot: Slot, token: int | None) -> Computed | None:
        """Return the step begun if it is the one requested: ``token`` appended to ``slot``. ``token`` is
        None for a forward that is no plain step."""
        begun, self._begun = self._begun, None
        last, self._last = self._last, None
        goes_on = last is not None and last[:2] == (slot, slot.length)
        if not goes_on or token is None or last is None or last[2].were_seen or last[2].argmax() != [token]:
            self._streak = 0
            # A step lost at the end of a request does not count.
            self._wanted *= 1 + (goes_on and begun is not None)
            return None
        self._streak += 1
        return begun

    def is_due(self, slot: Slot, token: int | None, logits: MlxLogits) -> bool:
        """Note a forward; return True if the next step is to be begun. ``token``: see :meth:`take`."""
        if token is None or not self._possible:
            return False
        self._last = slot, slot.length, logits
        return self._streak >= self._wanted

    def keep(self, states: list[Sequence[State]], logits: MlxLogits) -> None:
        """Keep the result of the step that was begun after the last one."""
        self._begun = states, logits

    def forget(self) -> None:
        """Drop the step begun, and count from zero: a sequence was closed, or the step failed."""
        self._begun = self._last = None
        self._streak, self._wanted = 0, STREAK
