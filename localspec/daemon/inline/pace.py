"""When a completion that came by itself is begun: at once, or once the person has probably paused."""

from __future__ import annotations

GAP_S = 0.2
"""between two keystrokes, until some were seen"""
PAUSE_S = 1.0
"""a gap from which on it says nothing of how fast somebody types"""
SHARE = 0.2
"""of what is newest in what is known"""
GAPS = 1.5
"""so many gaps without a keystroke are probably a pause"""
LONGEST_S = 0.3


class Pace:
    """How fast one client's person types, and how soon a model has answered; times in seconds.

    An answer that comes between two keystrokes is begun at once. A slower one would be given up at the next
    keystroke, again and again, with the processor at work all the while: it is begun the later, the longer it
    takes, but never later than when the person has probably paused.
    """

    def __init__(self) -> None:
        self._gap = GAP_S
        self._answer = 0.0
        self._last: float | None = None

    def asked(self, now: float) -> None:
        """A keystroke has asked."""
        if self._last is not None and now - self._last < PAUSE_S:
            self._gap += SHARE * (now - self._last - self._gap)
        self._last = now

    def answered(self, seconds: float, *, whole: bool) -> None:
        """A model has been at work for so long; ``whole``: until its answer was there."""
        seconds = min(seconds, PAUSE_S)  # more makes no difference: the model had to be loaded first, say
        if whole:
            self._answer += SHARE * (seconds - self._answer)
        else:
            self._answer = max(self._answer, seconds)

    @property
    def wait(self) -> float:
        """How long to wait with what was just asked."""
        return min(max(0.0, self._answer - self._gap), GAPS * self._gap, LONGEST_S)
