"""The speed of a client's typing and of a model's answers, by which a completion is begun later."""

from __future__ import annotations

GAP_S = 0.2
"""assumed seconds between two keystrokes, until some were measured"""
PAUSE_S = 1.0
"""seconds from which a gap is a pause, and is not counted in the speed of typing"""
SHARE = 0.2
"""weight of the newest measurement in the moving average"""
GAPS = 1.5
"""gaps without a keystroke after which the user has probably paused"""
LONGEST_S = 0.3
"""longest delay, in seconds"""


class Pace:
    """Averages of the time between one client's keystrokes and of a model's answers, in seconds.

    An answer that comes between two keystrokes is begun at once. A slower one would be cancelled at the next
    keystroke, again and again, at the cost of computing time: it is begun the later, the longer it takes, but
    not after the user has probably paused.
    """

    def __init__(self) -> None:
        self._gap = GAP_S
        self._answer = 0.0
        self._last: float | None = None

    def requested(self, now: float) -> None:
        """Note a request, which a keystroke has caused."""
        if self._last is not None and now - self._last < PAUSE_S:
            self._gap += SHARE * (now - self._last - self._gap)
        self._last = now

    def answered(self, seconds: float, *, whole: bool) -> None:
        """Note the ``seconds`` that a model has worked; ``whole``: until its answer was complete."""
        seconds = min(seconds, PAUSE_S)  # more makes no difference: the model may have been loaded first
        if whole:
            self._answer += SHARE * (seconds - self._answer)
        else:
            self._answer = max(self._answer, seconds)

    @property
    def wait(self) -> float:
        """The delay of the request that was just noted, in seconds."""
        return min(max(0.0, self._answer - self._gap), GAPS * self._gap, LONGEST_S)
