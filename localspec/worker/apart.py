"""Long texts are tokenized beside the engine's thread, so that nobody else's tokens wait for that."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from localspec.protocol.requests import ChatPrompt, Prompt, TextPrompt
from localspec.worker.channel import Channel

T = TypeVar("T")

LONG = 8192
"""characters of a text that takes some 10 ms; shorter ones are not worth a thread"""


def size_of(prompt: Prompt) -> int:
    """Characters to tokenize; of a gap only so many are that it is always short."""
    if isinstance(prompt, ChatPrompt):
        return sum(len(message.content) for message in prompt.messages)
    return len(prompt.text) if isinstance(prompt, TextPrompt) else 0


class Apart:
    """Work in a thread of its own, one after the other; its outcome is handed over by the channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="texts")
        self._ids: dict[int, bool] = {}

    def __bool__(self) -> bool:
        """Whether there is work that has not been handed over."""
        return bool(self._ids)

    def begin(self, id: int, work: Callable[[], T], then: Callable[[Callable[[], T], bool], None]) -> None:
        """Do ``work``, then have the engine's thread call ``then``: with a function that returns what it has
        returned, or raises what it has raised, and with whether ``id`` was cancelled meanwhile."""
        self._ids[id] = False
        self._thread.submit(work).add_done_callback(
            lambda done: self._channel.call(lambda: then(done.result, self._ids.pop(id)))
        )

    def cancel(self, id: int) -> None:
        """Note that nobody wants the outcome any more."""
        if id in self._ids:
            self._ids[id] = True

    def close(self) -> None:
        """Wait for the work that was begun, and give up the rest."""
        self._thread.shutdown(cancel_futures=True)
