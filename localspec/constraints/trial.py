"""Trials of grammars in a process of its own, which ends in place of the worker.

A call of the library cannot be interrupted, and its own limits do not hold everywhere: a chain of 3,000 rules
uses up the stack, and the common part of a few expressions takes minutes and gigabytes.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

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
HEAD = struct.Struct(">If")
"""the length of a grammar, and the seconds that it may take"""


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
            child = self._child = self._child or self._start()
            assert child.stdin is not None and child.stdout is not None
            text, ended = grammar.encode("utf-8", "replace"), b""
            with suppress(BrokenPipeError):
                child.stdin.write(HEAD.pack(len(text), seconds) + text)
                child.stdin.flush()
                while not is_cancelled() and not select.select([child.stdout], [], [], POLL_S)[0]:
                    pass
                ended = b"" if is_cancelled() else child.stdout.read(1)
            if not ended:
                self._stop(child)
            return bool(ended)

    def close(self) -> None:
        """End the child, also within a trial."""
        if (child := self._child) is not None:
            child.kill()
            with self._lock:
                self._stop(child)

    def _start(self) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            python(__spec__.name),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            **surroundings(),
        )
        vocabulary = self._vocabulary
        special = {token: vocabulary.text_of(token).decode("latin-1") for token in vocabulary.special_tokens}
        facts = vocabulary.size, sorted(vocabulary.end_tokens), special
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(json.dumps(facts).encode() + b"\n")
        child.stdin.flush()
        if not child.stdout.read(1):
            self._stop(child)
            raise EngineError("the process that tries grammars could not be started")
        return child

    def _stop(self, child: subprocess.Popen[bytes]) -> None:
        self._child = None
        child.kill()
        with suppress(BrokenPipeError):
            child.communicate()


class _Bytes:
    """A vocabulary of single bytes, with the special tokens and the size of another one."""

    def __init__(self, size: int, ends: list[int], special: Mapping[str, str]) -> None:
        named = {int(token): text.encode("latin-1") for token, text in special.items()}
        self.tokens = [named.get(token, b"") for token in range(size)]
        free = (token for token in range(size) if token not in named)
        for token, byte in zip(free, range(256), strict=False):
            self.tokens[token] = bytes((byte,))
        self.special_token_ids, self.bos_token_id, self.eos_token_id = sorted(named), None, min(ends)

    def __call__(self, text: bytes) -> list[int]:
        return []


def serve(stream: BinaryIO, out: BinaryIO) -> None:
    """Compile the grammars of ``stream``; SIGPROF ends the process when one has taken its time."""
    size, ends, special = json.loads(stream.readline())
    tokenizer = LLTokenizer(TokenizerWrapper(_Bytes(size, ends, special)), size, ends)
    out.write(b"\n")
    out.flush()
    while head := stream.read(HEAD.size):
        length, seconds = HEAD.unpack(head)
        grammar = stream.read(length).decode()
        signal.setitimer(signal.ITIMER_PROF, seconds)
        LLMatcher(tokenizer, grammar, log_level=0, limits=LIMITS).compute_bitmask()
        signal.setitimer(signal.ITIMER_PROF, 0)
        out.write(b"\n")
        out.flush()


def main() -> None:
    if sys.platform == "linux":  # elsewhere this limit is not kept, or refused
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    os.nice(5)
    threading.stack_size(STACK)
    thread = threading.Thread(target=serve, args=(sys.stdin.buffer, sys.stdout.buffer))
    thread.start()
    thread.join()


if __name__ == "__main__":
    main()
