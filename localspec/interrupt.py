"""Ctrl-C during work that must not end half-way: a step of the engine, or the loading of a model."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def delayed() -> Iterator[Callable[[], bool]]:
    """Keep a SIGINT until the block has ended; then the program's own handler gets it.

    Yields a function that returns True once one has come. A second one ends the process at once if the
    program leaves SIGINT to Python; those that come during one native call count as one. Only the main thread
    runs handlers: in another one, and where SIGINT is ignored, this does nothing.
    """
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    came: list[FrameType | None] = []

    def keep(_: int, frame: FrameType | None) -> None:
        if handler is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        came.append(frame)

    signal.signal(signal.SIGINT, keep)
    try:
        yield lambda: bool(came)
    finally:
        if signal.getsignal(signal.SIGINT) in (keep, signal.SIG_DFL):  # else the block has set another one
            signal.signal(signal.SIGINT, handler)
        if came:
            handler(signal.SIGINT, came[0])
