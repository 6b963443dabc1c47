"""The status line: models, speed, and the effect of speculation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rich.text import Text
from textual.widget import Widget

from localspec.protocol.results import Stats
from localspec.protocol.sessions import Pairing
from localspec.tui.conversation import Answer
from localspec.tui.widgets.pulse import NAMES
from localspec.wording import counted, duration, one_line

PAUSE_S = 0.5
"""between two paintings while an answer grows"""
BETWEEN = " · "


class Part(NamedTuple):
    """A part of the line; if not all fit, the one with the largest ``spare`` is dropped first."""

    text: str
    spare: int


class Status(Widget):
    """One line about a chat."""

    DEFAULT_CSS = """
    Status { height: 1; color: $text-muted; padding: 0 1; }
    """

    def __init__(self, *, id: str | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(id=id)
        self._clock = clock
        self.pairing: Pairing | None = None
        self.private = False
        self.notice = ""
        """a text that is shown instead of all else"""
        self._answer: Answer | None = None
        self._parts: list[Part] = []
        self._painted_at = 0.0

    def show(self, answer: Answer | None) -> None:
        """Show the last answer, if the current model gives it; a growing one at most every ``PAUSE_S``."""
        if answer is not None and self.pairing is not None and answer.model not in ("", self.pairing.target):
            answer = None
        now = self._clock()
        grows = answer is not None and answer is self._answer and answer.growing
        if grows and self._parts and not self.notice and now - self._painted_at < PAUSE_S:
            return
        self._answer, self._painted_at = answer, now
        parts = [Part(self.notice, 0)] if self.notice else [*self._models(), *self._figures()]
        self._parts = [Part(one_line(text), spare) for text, spare in parts]
        self.refresh()

    def render(self) -> Text:
        return Text(self.line(self.size.width), no_wrap=True, overflow="ellipsis")

    def line(self, columns: int) -> str:
        """The parts that fit on so many columns, as one text."""
        parts = [*self._parts]
        while len(parts) > 1 and len(BETWEEN.join(part.text for part in parts)) > columns:
            parts.remove(max(parts, key=lambda part: part.spare))
        return BETWEEN.join(part.text for part in parts)

    def _models(self) -> Iterator[Part]:
        if self.private:
            yield Part("private", 0)
        if (pairing := self.pairing) is None:
            return
        yield Part(pairing.target, 2)
        if pairing.draft is not None:
            yield Part(f"draft {pairing.draft}", 7)
        names = " + ".join(NAMES.get(source, source) for source in _drafters(self._answer))
        yield Part(f"auto: {names}" if names and pairing.proposer == "auto" else pairing.proposer, 6)

    def _figures(self) -> Iterator[Part]:
        answer = self._answer
        if answer is None:
            return
        if answer.growing:
            yield Part(counted(answer.tokens, "token"), 3)
            if answer.speed:
                yield Part(f"{answer.speed:.0f} tok/s", 1)
            if answer.drafted:
                yield Part(f"{answer.drafted:.0%} drafted", 4)
        elif answer.result is not None:
            yield from _of(answer.result.stats)


def _drafters(answer: Answer | None) -> list[str]:
    """The proposer that drafted last, or all that drafted for a finished answer."""
    if answer is None:
        return []
    if answer.growing:
        return [answer.drafter] if answer.drafter is not None else []
    stats = Stats() if answer.result is None else answer.result.stats
    return [source for source, each in stats.proposers.items() if each.drafted]


def _of(stats: Stats) -> Iterator[Part]:
    if stats.decode_tokens_per_s:
        yield Part(f"{stats.decode_tokens_per_s:.0f} tok/s", 1)
    if stats.acceptance_rate is not None:
        yield Part(f"{stats.acceptance_rate:.0%} accepted", 3)
    if stats.time_saved_s is not None and stats.drafted:
        what = "saved" if stats.time_saved_s >= 0 else "slower"
        yield Part(f"{duration(abs(stats.time_saved_s))} {what}", 4)
    if stats.speculation_off_reason:
        yield Part(stats.speculation_off_reason, 5)
