"""What was said in a chat, as data: questions and answers, the last of which may still grow."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from localspec.errors import LocalspecError
from localspec.protocol.results import Result, Token
from localspec.protocol.sessions import SessionContent, Status
from localspec.tui.attach import detached
from localspec.wording import printable, stats_lines

ROUNDS_KEPT = 120


class Run(NamedTuple):
    """Neighbouring tokens of one source: ``chars`` code points of text."""

    source: str
    chars: int


@dataclass(eq=False)
class Question:
    """What the person said; ``id`` is the daemon's, once it is known."""

    text: str
    id: int | None = None

    @property
    def written(self) -> str:
        """The text as it was typed: without the files that were attached to it."""
        return detached(self.text)


@dataclass(eq=False)
class Answer:
    """What the model says. ``runs`` say of each part of ``text`` who proposed it, as far as is known."""

    text: str = ""
    status: Status = "complete"
    id: int | None = None
    runs: list[Run] = field(default_factory=list)
    rounds: deque[int] = field(default_factory=lambda: deque(maxlen=ROUNDS_KEPT))
    """how many tokens each of the last rounds gave, the last of which may go on"""
    all_rounds: int = 0
    sources: Counter[str] = field(default_factory=Counter)
    """how many tokens are whose"""
    result: Result | None = None
    error: LocalspecError | None = None
    first: float | None = None
    last: float | None = None
    """when the first and the last tokens came, in seconds of an own clock"""
    _at_once: int = 0
    """tokens that came with the first one: many, of an answer that is picked up"""
    waiting: str = ""
    """what is done before the first token comes, for a person to read"""
    elsewhere: bool = False
    """whether it is being given to another program, or was to one that is gone"""

    def grow(self, text: str, tokens: Iterable[Token]) -> None:
        """A round has ended, or several, where the client was slow."""
        self.text += shown(text)
        for token in tokens:
            last = self.runs[-1] if self.runs else None
            if last is None or last.source == "target":  # which ends every round but an answer's last
                self.rounds.append(0)
                self.all_rounds += 1
            self.rounds[-1] += 1
            self.sources[token.source] += 1
            if last is not None and last.source == token.source:
                self.runs[-1] = Run(last.source, last.chars + token.chars)
            else:
                self.runs.append(Run(token.source, token.chars))
        self.last = time.monotonic()
        if self.first is None:
            self.first, self._at_once = self.last, self.tokens

    @property
    def tokens(self) -> int:
        """How many came."""
        return self.sources.total()

    @property
    def drafted(self) -> float:
        """The share of its tokens that were drafted."""
        return 1 - self.sources["target"] / self.tokens if self.tokens else 0.0

    @property
    def drafter(self) -> str | None:
        """Who drafted last."""
        return next((run.source for run in reversed(self.runs) if run.source != "target"), None)

    @property
    def speed(self) -> float | None:
        """Tokens per second since the first one came."""
        if self.first is None or self.last is None or self.last - self.first < 0.2:
            return None
        return (self.tokens - self._at_once) / (self.last - self.first)

    @property
    def growing(self) -> bool:
        return self.status == "streaming" and not self.elsewhere

    @property
    def ending(self) -> str:
        """How it ended: the finish reason where it is known, else the status; "silent" without a text."""
        if self.status != "complete":
            return self.status
        reason = "" if self.result is None else self.result.finish_reason
        return reason if self.text.strip() or reason in ("length", "context_full") else "silent"

    @property
    def statistics(self) -> str:
        """What it took, and what speculation did; two lines."""
        if self.result is None:
            return "its statistics were not kept"
        return stats_lines(self.result)


Said = Question | Answer


def said_in(content: SessionContent) -> list[Said]:
    """The messages of a session that was stored."""
    return [
        Question(shown(m.content), m.id)
        if m.role == "user"
        else Answer(shown(m.content), m.status, m.id, elsewhere=m.status == "streaming")
        for m in content.messages
    ]


def shown(text: str) -> str:
    """``text`` without what would command the terminal, one character for one: tokens keep their lengths."""
    return printable(text.replace("\r", " "))


def last_question(said: Sequence[Said]) -> Question | None:
    """The last question among messages."""
    return next((each for each in reversed(said) if isinstance(each, Question)), None)
