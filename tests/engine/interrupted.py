"""Requests of all kinds on one engine, an interrupt somewhere in between, and the state it may leave."""

from __future__ import annotations

import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

from localspec.engine.engine import Engine
from localspec.engine.sequence import Sequence
from localspec.errors import LocalspecError
from localspec.protocol.options import Options
from localspec.protocol.requests import Priority, Request, TextPrompt
from localspec.protocol.results import Result
from localspec.speculation.draft_model import DraftModel

TALE = "def f(x):\n    return x\n\n\ndef g(x):\n    return f(x) + f(x)\n\n\ndef h(x):\n    return g(x)\n\n\n"
PATIENCE = 3000
"""steps in which all requests end"""


class At:
    """Raises KeyboardInterrupt at the n-th line that is run in files of these ``places``: ends of paths."""

    def __init__(self, n: int, places: tuple[str, ...]) -> None:
        self._n, self._places = n, places
        self.lines: list[tuple[str, int]] = []
        """those that were run so far"""

    def __call__(self, frame: FrameType, event: str, _: Any) -> At | None:
        if not frame.f_code.co_filename.endswith(self._places):
            return None
        if event == "line":
            self.lines.append((frame.f_code.co_filename, frame.f_lineno))
            if len(self.lines) == self._n:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self


def interrupted_at(n: int, places: tuple[str, ...], work: Callable[[], None]) -> list[tuple[str, int]]:
    """Do the work, interrupted at the n-th line of these files; returns the lines that were run."""
    at, before = At(n, places), sys.gettrace()
    try:
        sys.settrace(at)
        work()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return at.lines


def moments(places: tuple[str, ...], work: Callable[[], None]) -> list[int]:
    """Return points at which to interrupt the work, as rising numbers for :func:`interrupted_at`.

    Of each line in these files: the first, the last and up to two other executions.
    """
    times: dict[tuple[str, int], list[int]] = {}
    for n, line in enumerate(interrupted_at(sys.maxsize, places, work), 1):
        times.setdefault(line, []).append(n)
    chosen = {each[(len(each) - 1) * part // 3] for each in times.values() for part in range(4)}
    return sorted(chosen)


def interrupted_after(seconds: float, work: Callable[[], None]) -> bool:
    """Do the work; after so many seconds this process gets a SIGINT. Returns whether that ended the work."""
    timer = threading.Timer(seconds, signal.raise_signal, (signal.SIGINT,))
    is_interrupted = False
    try:
        timer.start()
        work()
    except KeyboardInterrupt:
        is_interrupted = True
    try:
        timer.cancel()
        timer.join()
    except KeyboardInterrupt:
        pass
    return is_interrupted


class Scene:
    """Chats that share their start, one that waits, a completion that takes a chat's slot, a cancelled
    request, a chat that is forgotten, and one that goes on. ``turn`` makes prompts differ from those of
    other turns; every second one is sampled under a seed."""

    def __init__(self, engine: Engine, turn: int = 0) -> None:
        self.engine, self.turn = engine, turn
        self.asked: list[Sequence] = []

    def play(self) -> None:
        chat = f"{TALE}# {self.turn}\n"
        self._ask(chat, "chat:one", max_tokens=6)
        self._step(3)
        self._ask(chat + "def k", "chat:two")
        self._ask(f"{self.turn} lines", "run", "background")
        self._step(2)
        self._ask("import os\n", "run", "completion")
        self._ask("class A", "run", "chat", max_tokens=40)
        self._step(2)
        self.engine.cancel(self.asked[-1].id)
        self._step(PATIENCE)
        self.engine.forget("chat:two")
        for _ in range(4):
            self.engine.rest()
        self._ask(chat + "def k", "chat:one")
        self._step(PATIENCE)

    def _ask(self, text: str, source: str, priority: Priority | None = None, *, max_tokens: int = 4) -> None:
        self.asked.append(self.engine.submit(asked(text, max_tokens, self.turn % 2, source, priority)))

    def _step(self, most: int) -> None:
        for _ in range(most):
            if not self.engine.step():
                return


def asked(
    text: str, max_tokens: int, temperature: float, source: str = "run", priority: Priority | None = None
) -> Request:
    """A request whose answer is always the same."""
    options = Options(temperature=temperature, seed=7, max_tokens=max_tokens, k=3, proposer="auto")
    return Request(prompt=TextPrompt(text), options=options, source=source, priority=priority)


class Truth:
    """The texts that a fresh engine generates, computed once per request."""

    def __init__(self, fresh: Callable[[], Engine]) -> None:
        self._fresh = fresh
        self._known: dict[Request, str] = {}

    def __call__(self, request: Request) -> str:
        if request not in self._known:
            with self._fresh() as engine:
                self._known[request] = engine.stream(request).finish().text
        return self._known[request]


def check(scene: Scene, truth: Truth) -> Counter[str]:
    """Check that every request of an interrupted scene ends once, that no slot leaks, and that later requests
    get the right texts. Returns the number of requests by finish reason or error message."""
    engine, ends = scene.engine, Counter[str]()
    steps = sum(1 for _ in range(PATIENCE) if engine.step())
    assert steps < PATIENCE
    for sequence in scene.asked:
        (last,) = [event for event in sequence.events if isinstance(event, (Result, LocalspecError))]
        assert last is sequence.events[-1]
        ends[last.finish_reason if isinstance(last, Result) else last.message] += 1
    check_slots(engine)
    for text in (f"{TALE}# {scene.turn}\ndef k", TALE, "import os\n", "0 lines"):
        request = asked(text, 5, scene.turn % 2)
        assert engine.stream(request).finish().text == truth(request)
    check_slots(engine)
    return ends


def check_slots(engine: Engine) -> None:
    """Every open sequence of both backends is one that will be used again."""
    kept = [cached.slot for cached in engine._scheduler.prefixes]
    assert sorted(kept) == sorted(engine.target.sequences())
    draft = engine._proposers._plain.get("draft")
    if isinstance(draft, DraftModel):
        assert not draft._cursors
        assert sorted(cursor.sequence for cursor in draft._idle) == sorted(draft.backend.sequences())
