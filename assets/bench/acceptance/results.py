"""The document of an acceptance run: that of a benchmark, special workloads and goals."""

from __future__ import annotations

import msgspec

from localspec.bench.results import Results


class TwoUp(msgspec.Struct, frozen=True):
    """A chat streaming while completions arrive.

    ``completion_alone_s`` and ``completion_s`` are medians, ``*_p95_s`` 95th percentiles; ``*_alone_*``
    without the other. ``share`` is the completions' part of the time if they ran alone.
    ``diverged``: exact requests whose text differed from that alone.
    """

    contestant: str
    completions: int
    completion_alone_s: float
    completion_s: float
    chat_alone_s_per_token: float
    chat_s_per_token: float
    share: float
    diverged: int = 0
    completion_alone_p95_s: float | None = None
    completion_p95_s: float | None = None


class Restart(msgspec.Struct, frozen=True):
    """``edit-long`` after a restart.

    ``memory`` is ``kept`` (filled by this model), ``empty``, or ``other`` (filled by the draft model);
    shares are of output tokens that came from memory, and times per output token, over all turns and
    over first turns: an empty memory has learnt the first turn by the second.
    ``diverged``: exact requests whose text differed from plain decoding.
    """

    memory: str
    repeat: int
    share: float
    first_turn_share: float
    s_per_token: float
    diverged: int = 0
    first_turn_s_per_token: float | None = None


class Goal(msgspec.Struct, frozen=True):
    """A figure and its goal; ``met`` None: unknown. ``note`` is the reason if it is not met."""

    name: str
    figure: str
    goal: str
    met: bool | None
    note: str = ""


class AcceptanceResults(Results, kw_only=True):
    """The document."""

    two_up: list[TwoUp] = []
    restarts: list[Restart] = []
    goals: list[Goal] = []

    @property
    def has_something(self) -> bool:
        return bool(self.figures or self.restarts or self.two_up)
