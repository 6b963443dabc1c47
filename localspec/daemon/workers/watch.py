"""The judgement by its frames whether a worker hangs."""

from __future__ import annotations

STEPS = 20.0
"""longest duration of a step, as a multiple of the predicted one"""
LOAD_SILENCE = 4.0
"""longest time without a frame during a load, as a multiple of the limit: libraries load slowly from disk"""
LOAD_STILL = 20.0
"""longest time without progress of a load, as a multiple of the limit"""


class Watch:
    """Judges by the worker's frames. All times are monotonic seconds; ``limit_s`` is the time that any step
    may take."""

    def __init__(self, limit_s: float, now: float) -> None:
        self._limit_s = limit_s
        self._predicted_s = 0.0
        self._steps = -1
        self._moved = self._last_seen = now

    def beat(self, steps: int, predicted_s: float, now: float) -> None:
        """Note a heartbeat: the number of steps done, and the predicted seconds of the current one."""
        self._last_seen = now
        self._predicted_s = predicted_s
        if steps != self._steps:
            self._steps = steps
            self._moved = now

    def note_move(self, now: float) -> None:
        """Note another frame of the worker, or the start of work."""
        self._last_seen = self._moved = now

    def away(self, seconds: float) -> None:
        """Discount ``seconds`` in which the daemon itself was suspended, and read no frames."""
        self._moved += seconds
        self._last_seen += seconds

    def still_s(self, now: float, *, loading: bool) -> float | None:
        """The seconds without progress of a worker that has work, if they are too many; else None."""
        still, silent = now - self._moved, now - self._last_seen
        if loading:
            hung = still > LOAD_STILL * self._limit_s or silent > LOAD_SILENCE * self._limit_s
        else:
            # The prediction is that of the current step; there is no current step without heartbeats.
            hung = silent > self._limit_s or still > max(self._limit_s, STEPS * self._predicted_s)
        return still if hung else None
