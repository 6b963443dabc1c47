"""A thread beside the engine's that tokenizes long texts, so that other requests do not wait for them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec

from localspec.protocol.requests import ChatPrompt, Prompt, TextPrompt
from localspec.worker.channel import Channel

T = TypeVar("T")

LONG = 8192
"""characters of a text that takes about 10 ms to tokenize; shorter ones are not worth a thread"""
MESSAGE = 32
"""assumed characters that a template puts around a message"""


def size_of(prompt: Prompt) -> int:
    """Return about how many characters must be rendered and tokenized; 0 for tokens, and for a gap, whose
    prompt is short."""
    if isinstance(prompt, ChatPrompt):
        variables = len(msgspec.msgpack.encode(prompt.variables))
        return variables + sum(MESSAGE + len(message.content) for message in prompt.messages)
    return len(prompt.text) if isinstance(prompt, TextPrompt) else 0


class Fate:
    """The changes to a job between its start and its result: it is ``cancelled``, perhaps even ``dropped``
    before it began, or its ``source`` is ``forgotten``."""

    def __init__(self, source: str = "") -> None:
        self.source = source
        self.cancelled = self.dropped = self.forgotten = False


class Apart:
    """Jobs in a thread of their own, one after the other; the channel hands their results over."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="texts")
        self._jobs: dict[int, tuple[Fate, Future[Any]]] = {}

    def __bool__(self) -> bool:
        """True if there are jobs whose results have not been handed over."""
        return bool(self._jobs)

    def begin(
        self, id: int, fate: Fate, work: Callable[[], T], then: Callable[[Callable[[], T]], None]
    ) -> None:
        """Run ``work`` in the thread, then call ``then`` on the engine's thread, with a function that returns
        the result of ``work`` or raises its exception. That function must not be called for dropped work."""
        future = self._thread.submit(work)
        self._jobs[id] = fate, future
        future.add_done_callback(lambda done: self._channel.call(lambda: self._end(id, then, done)))

    def _end(self, id: int, then: Callable[[Callable[[], T]], None], done: Future[T]) -> None:
        del self._jobs[id]
        then(done.result)

    def cancel(self, id: int) -> None:
        """Mark a job as cancelled; if its work has not begun, it is dropped."""
        if id in self._jobs:
            fate, future = self._jobs[id]
            fate.cancelled = True
            fate.dropped = future.cancel()

    def forget(self, source: str) -> None:
        """Mark all jobs of ``source`` as forgotten."""
        for fate, _ in self._jobs.values():
            fate.forgotten |= fate.source == source

    def close(self) -> bool:
        """Drop all work that has not begun, without waiting for the rest; return True if none is running."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        return all(future.done() for _, future in self._jobs.values())
