"""Whether a worker gets on with its work."""

from __future__ import annotations

STEPS = 20.0
"""times the predicted time that a step may take"""
LOAD_SILENCE = 4.0
"""times the limit that a loading worker may send nothing at all: libraries are slow on a cold disk"""
LOAD_STILL = 20.0
"""times the limit that a load may show no progress"""


class Watch:
    """Judges by what the worker tells. All times are monotonic seconds; ``limit_s`` is what a step may
    always take."""

    def __init__(self, limit_s: float, now: float) -> None:
        self._limit_s = limit_s
        self._predicted_s = 0.0
        self._steps = -1
        self._moved = self._heard = now

    def beat(self, steps: int, predicted_s: float, now: float) -> None:
        """A heartbeat: so many steps are done, and the one under way should take so long."""
        self._heard = now
        self._predicted_s = predicted_s
        if steps != self._steps:
            self._steps = steps
            self._moved = now

    def moved(self, now: float) -> None:
        """It said something else, or has just been given work."""
        self._heard = self._moved = now

    def away(self, seconds: float) -> None:
        """The daemon itself stood still so long and heard nothing: that is nobody's fault."""
        self._moved += seconds
        self._heard += seconds

    def still_s(self, now: float, *, loading: bool) -> float | None:
        """For how long a worker that has work did nothing, if that is too long."""
        still, silent = now - self._moved, now - self._heard
        if loading:
            hung = still > LOAD_STILL * self._limit_s or silent > LOAD_SILENCE * self._limit_s
        else:
            # The prediction is of a step that is being played; nothing is played without heartbeats.
            hung = silent > self._limit_s or still > max(self._limit_s, STEPS * self._predicted_s)
        return still if hung else None
