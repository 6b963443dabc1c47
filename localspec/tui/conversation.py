"""The messages of a chat as data: questions and answers, the last of which may still grow."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from localspec.agent.loop import CallRun, Writing
from localspec.errors import LocalspecError
from localspec.protocol.messages import SessionContent, Status
from localspec.protocol.requests import Delta, Result, ToolCall
from localspec.tui.attach import detach_files
from localspec.wording import printable


class SourceRun(NamedTuple):
    """Neighbouring tokens of one source: ``chars`` code points of text."""

    source: str
    chars: int


@dataclass(eq=False)
class ChatQuestion:
    """A message of the user; ``id`` is the daemon's, once it is stored."""

    role: ClassVar = "user"
    text: str
    id: int | None = None

    @property
    def written(self) -> str:
        """The text as typed, without the attached files."""
        return detach_files(self.text)


@dataclass(eq=False)
class ChatCall:
    """A call that an answer makes, and its result; stored with the results of all calls of the answer."""

    made: CallRun
    id: int | None = None
    role: ClassVar = "tool"

    @property
    def text(self) -> str:
        """The result; empty while the call runs."""
        return replace_controls(self.made.text or "")


@dataclass(eq=False)
class ChatAnswer:
    """A message of the model. ``runs`` are the sources of the parts of ``text``, as far as received here."""

    role: ClassVar = "assistant"
    text: str = ""
    status: Status = "complete"
    id: int | None = None
    model: str = ""
    runs: list[SourceRun] = field(default_factory=list)
    sources: Counter[str] = field(default_factory=Counter)
    """tokens by source"""
    result: Result | None = None
    context: int = 0
    """tokens of its model's context; 0: not known"""
    error: LocalspecError | None = None
    first: float | None = None
    last: float | None = None
    """times of the first and the last tokens, in seconds of the monotonic clock"""
    _at_once: int = 0
    """tokens received with the first one: many, for a resumed answer"""
    thoughts: str = ""
    """what the model thought before the answer, as far as received here"""
    waiting: str = ""
    """state before the first token, as shown to the user"""
    elsewhere: bool = False
    """True if another client receives it, or did so until it ended"""
    calls: tuple[ToolCall, ...] = ()
    writing: Writing = field(default_factory=Writing)

    def grow(self, delta: Delta) -> None:
        """Append the text and tokens of a round, or of several, if the client was slow."""
        if delta.channel == "thinking":
            self.thoughts += replace_controls(delta.text)
        elif delta.channel == "answer":
            self.text += replace_controls(delta.text)
        self.writing.take(delta)
        self.sources.update(token.source for token in delta.tokens)
        for token in delta.tokens if delta.channel == "answer" else ():
            if self.runs and self.runs[-1].source == token.source:
                self.runs[-1] = SourceRun(token.source, self.runs[-1].chars + token.chars)
            else:
                self.runs.append(SourceRun(token.source, token.chars))
        self.last = time.monotonic()
        if self.first is None:
            self.first, self._at_once = self.last, self.tokens

    @property
    def tokens(self) -> int:
        return self.sources.total()

    @property
    def speed(self) -> float | None:
        """Tokens per second since the first one; None in the first 0.2 s."""
        if self.first is None or self.last is None or self.last - self.first < 0.2:
            return None
        return (self.tokens - self._at_once) / (self.last - self.first)

    @property
    def growing(self) -> bool:
        return self.status == "streaming" and not self.elsewhere

    @property
    def ending(self) -> str:
        """The ending: the finish reason if it is known, else the status; "silent" without text."""
        if self.status != "complete":
            return self.status
        reason = "" if self.result is None else self.result.finish_reason
        if self.calls:
            return "tool_calls"
        return reason if self.text.strip() or reason in ("length", "context_full") else "silent"


Said = ChatQuestion | ChatAnswer | ChatCall


def read_messages(content: SessionContent) -> list[Said]:
    said: list[Said] = []
    calls: dict[str, ToolCall] = {}
    for m in content.messages:
        calls |= {call.id: call for call in m.tool_calls}
        text = replace_controls(m.content)
        if m.role == "user":
            said.append(ChatQuestion(text, m.id))
        elif m.role == "tool":
            said.append(ChatCall(CallRun(calls[m.tool_call_id], m.content), m.id))
        else:
            elsewhere = m.status == "streaming"
            said.append(ChatAnswer(text, m.status, m.id, elsewhere=elsewhere, calls=m.tool_calls))
    return said


def replace_controls(text: str) -> str:
    """``text`` with each control character replaced by one other character: tokens keep their lengths."""
    return printable(text.replace("\r", " "))


def last_question(said: Sequence[Said]) -> ChatQuestion | None:
    return next((each for each in reversed(said) if isinstance(each, ChatQuestion)), None)
