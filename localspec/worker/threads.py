"""Threads for what takes long beside the engine, so that other requests do not wait for it: long texts are
tokenized there, chats rendered, and grammars compiled."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from typing import Any, TypeVar

from localspec.backends.base import ModelVocabulary
from localspec.child import Child
from localspec.constraints import trial
from localspec.constraints.constraint import Attempt
from localspec.errors import InvalidOptions
from localspec.protocol.options import Options
from localspec.protocol.requests import ChatPrompt, Prompt, TextPrompt
from localspec.worker.channel import Channel

T = TypeVar("T")
Then = Callable[[Callable[[], T]], None]
LONG = 8192
"""characters of a text that takes about 10 ms to tokenize; shorter ones are not worth a thread"""
QUICK_S, SLOW_S = 0.1, 1.5
"""processor time that a grammar may take among the others, and one at a time"""
LONG_GRAMMAR = 1 << 17
"""characters of a grammar that is not tried among the others"""
TOO_COMPLEX = "the answer's form takes too much time or memory to compile"


def takes_long(prompt: Prompt | str | tuple[int, ...], options: Options) -> bool:
    """True for a long text to tokenize, a grammar to compile, and any chat: its template is a program of the
    model's author."""
    if isinstance(prompt, ChatPrompt) or options.has_form:
        return True
    text = prompt.text if isinstance(prompt, TextPrompt) else prompt
    return isinstance(text, str | tuple) and len(text) > LONG


class JobState:
    """The changes to a job between its start and its result: it is ``cancelled``, perhaps even ``dropped``
    before its work was done, or its ``source`` is ``forgotten``."""

    def __init__(self, source: str = "") -> None:
        self.source = source
        self.cancelled = self.dropped = self.forgotten = False


class GrammarTooSlow(Exception):
    """A job was ended because its grammar takes longer than QUICK_S, or because it was cancelled."""


class TextThreads:
    """Jobs in threads of their own, two at a time; the channel hands their results over. Those whose grammars
    are slow to compile begin again in a line behind each other, so that others pass them."""

    def __init__(self, channel: Channel, vocabulary: ModelVocabulary) -> None:
        self._channel = channel
        self._threads = [ThreadPoolExecutor(n, thread_name_prefix="texts") for n in (2, 1)]
        self._trials = Child(trial.__name__), Child(trial.__name__)
        self._tokens = cache(partial(trial.name_tokens, vocabulary))
        self._jobs: dict[int, tuple[JobState, Future[Any]]] = {}

    def __bool__(self) -> bool:
        """True if there are jobs whose results have not been handed over."""
        return bool(self._jobs)

    def begin(
        self, id: int, fate: JobState, work: Callable[[Attempt], T], then: Then[T], *, slow: bool = False
    ) -> None:
        """Run ``work`` in a thread, then call ``then`` on the engine's thread, with a function that returns
        the result of ``work`` or raises its exception. That function must not be called for dropped work."""

        def end() -> None:
            del self._jobs[id]
            is_slow = not future.cancelled() and isinstance(future.exception(), GrammarTooSlow)
            if is_slow and not fate.cancelled:
                self.begin(id, fate, work, then, slow=True)
                return
            fate.dropped |= is_slow
            then(future.result)

        future = self._threads[slow].submit(work, partial(self._attempt, fate, slow))
        self._jobs[id] = fate, future
        future.add_done_callback(lambda _: self._channel.call(end))

    def _attempt(self, fate: JobState, slow: bool, grammar: str) -> None:
        """Raise an error if the grammar takes too long in this line, or the job was cancelled."""
        seconds, most = (SLOW_S, math.inf) if slow else (QUICK_S, LONG_GRAMMAR)
        work = self._tokens(), grammar, seconds
        if len(grammar) <= most and self._trials[slow].do(work, lambda: fate.cancelled) is not None:
            return
        if slow and not fate.cancelled:
            raise InvalidOptions(TOO_COMPLEX, "Simplify it.")
        raise GrammarTooSlow

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
        for threads, child in zip(self._threads, self._trials, strict=True):
            threads.shutdown(wait=False, cancel_futures=True)
            child.close()
        return all(future.done() for _, future in self._jobs.values())
