"""Trials of grammars in a process of its own, which ends in place of the worker.

A call of the library cannot be interrupted, and its own limits do not hold everywhere: a chain of 3,000 rules
uses up the stack, and the common part of a few expressions takes minutes and gigabytes.
"""

from __future__ import annotations

import os
import pickle
import resource
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from localspec.errors import EngineError
from localspec.process import python, surroundings

if TYPE_CHECKING:  # its module takes a child longer to import than all else
    from localspec.backends.base import Vocabulary

LIMITS = LLParserLimits(
    verbose_errors=False, max_grammar_size=100_000, initial_lexer_fuel=250_000, step_lexer_fuel=100_000
)
"""the library's own bounds on the sizes of a grammar and on the work for one position; with its defaults a
million forced letters take 2 s at the beginning and 0.3 s within an answer, where other requests wait"""
MOST_BYTES = 1 << 29
"""address space of a child"""
STACK = 4 << 20
"""bytes of a child's stack: half of what a worker's thread has"""
POLL_S = 0.05


class Trial:
    """A child that compiles grammars for a vocabulary, one after the other; any thread may use it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def compiles(self, grammar: str, seconds: float, is_cancelled: Callable[[], bool]) -> bool:
        """Return True if the library comes to a result, a refusal included, within ``seconds`` of processor
        time and MOST_BYTES; False if it does not, or if ``is_cancelled`` returns True meanwhile.
        Raises :class:`EngineError` if there is no child."""
        with self._lock:
            if self._child is not None and self._child.poll() is not None:
                self._stop(self._child)  # it was killed while it was idle
            self._child = self._child or self._start()
            return self._finishes(self._child, (grammar, seconds), is_cancelled)

    def close(self) -> None:
        """End the child, also within a trial."""
        if (child := self._child) is not None:
            child.kill()
            with self._lock:
                self._stop(child)

    def _start(self) -> subprocess.Popen[bytes]:
        command, pipe, null = python(__spec__.name), subprocess.PIPE, subprocess.DEVNULL
        child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null, **surroundings())
        vocabulary = self._vocabulary
        special = {token: vocabulary.text_of(token) for token in sorted(vocabulary.special_tokens)}
        if not self._finishes(
            child, (vocabulary.size, sorted(vocabulary.end_tokens), special), lambda: False
        ):
            raise EngineError("the process that tries grammars could not be started")
        return child

    def _finishes(self, child: subprocess.Popen[bytes], work: Any, is_cancelled: Callable[[], bool]) -> bool:
        """Hand ``work`` to the child and wait until it is done; else stop the child and return False."""
        assert child.stdin is not None and child.stdout is not None
        with suppress(BrokenPipeError):
            pickle.dump(work, child.stdin)
            child.stdin.flush()
            while not is_cancelled() and not select.select([child.stdout], [], [], POLL_S)[0]:
                pass
            if not is_cancelled() and child.stdout.read(1):
                return True
        self._stop(child)
        return False

    def _stop(self, child: subprocess.Popen[bytes]) -> None:
        self._child = None
        child.kill()
        child.communicate()


class _Bytes:
    """A vocabulary of single bytes, with the special tokens and the size of another one."""

    def __init__(self, size: int, ends: list[int], special: Mapping[int, bytes]) -> None:
        single = (bytes((byte,)) for byte in range(256))
        self.tokens = [special[i] if i in special else next(single, b"") for i in range(size)]
        self.special_token_ids, self.bos_token_id, self.eos_token_id = list(special), None, min(ends)

    def __call__(self, text: bytes) -> list[int]:
        return []


def serve(stream: BinaryIO, out: BinaryIO) -> None:
    """Compile the grammars of ``stream``; SIGPROF ends the process when one has taken its time."""
    size, ends, special = pickle.load(stream)
    tokenizer = LLTokenizer(TokenizerWrapper(_Bytes(size, ends, special)), size, ends)
    while True:
        out.write(b"\n")
        out.flush()
        grammar, seconds = pickle.load(stream)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        LLMatcher(tokenizer, grammar, log_level=0, limits=LIMITS).compute_bitmask()
        signal.setitimer(signal.ITIMER_PROF, 0)


def main() -> None:
    if sys.platform == "linux":  # elsewhere these limits are not kept, or refused
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        resource.setrlimit(resource.RLIMIT_STACK, (STACK, STACK))
    os.nice(5)
    with suppress(EOFError):  # the worker has ended
        serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
