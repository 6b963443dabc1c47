"""A worker that tokenizes a long text goes on with everybody else's requests meanwhile."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import BinaryIO

import pytest

from localspec.backends.toy import ToyBackend, ToyVocabulary
from localspec.engine.engine import Engine
from localspec.protocol.frames import (
    HEADER,
    Cancel,
    Done,
    Failed,
    FromWorker,
    Heartbeat,
    Stop,
    Submit,
    Tokenize,
    Tokenized,
    ToWorker,
    encode_frame,
    from_worker_decoder,
)
from localspec.protocol.options import Options
from localspec.protocol.requests import ChatPrompt, Message, Prompt, Request, TextPrompt
from localspec.worker.apart import LONG
from localspec.worker.channel import Channel
from localspec.worker.loop import Worker
from localspec.worker.pulse import Pulse
from tests.waiting import DEADLINE_S

SHORT = TextPrompt("abc")


class Slow(ToyVocabulary):
    """Tokenizes a long text when it is told to."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()

    def encode(self, text: str, *, special: bool) -> list[int]:
        if "x" * LONG in text:
            self.begun.set()
            assert self.go.wait(DEADLINE_S)
        return list(text.encode())


class Daemon:
    """The daemon's end of a worker that runs in a thread."""

    def __init__(self, sock: socket.socket, stream: BinaryIO, vocabulary: Slow) -> None:
        self._socket, self._stream = sock, stream
        self.vocabulary = vocabulary

    def send(self, message: ToWorker) -> None:
        self._socket.sendall(encode_frame(message))

    def submit(self, id: int, prompt: Prompt) -> None:
        self.send(Submit(id, Request(prompt=prompt, options=Options(max_tokens=4)), False))

    def next(self) -> FromWorker:
        (length,) = HEADER.unpack(self._stream.read(HEADER.size))
        frame: FromWorker = from_worker_decoder.decode(self._stream.read(length))
        return frame

    def end(self) -> Done | Failed | Tokenized:
        """The next frame that ends a job."""
        while not isinstance(frame := self.next(), Done | Failed | Tokenized):
            pass
        return frame


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    ours, theirs = socket.socketpair()
    ours.settimeout(DEADLINE_S)
    vocabulary = Slow()
    channel = Channel(theirs, last_words_s=3600.0)
    with ours, ours.makefile("rb") as stream:
        engine = Engine(ToyBackend(n_ctx=2 * LONG, vocabulary=vocabulary))
        worker = threading.Thread(target=Worker(channel, engine, Pulse(channel)).run, daemon=True)
        worker.start()
        daemon = Daemon(ours, stream, vocabulary)
        yield daemon
        vocabulary.go.set()
        daemon.send(Stop())
        worker.join(DEADLINE_S)
        assert not worker.is_alive()


def long_prompt(kind: str) -> Prompt:
    text = "x" * (LONG + 1)
    return TextPrompt(text) if kind == "text" else ChatPrompt((Message("user", text),))


@pytest.mark.parametrize("kind", ["text", "chat"])
def test_others_are_answered_while_a_prompt_is_tokenized(daemon: Daemon, kind: str) -> None:
    daemon.submit(1, long_prompt(kind))
    assert daemon.vocabulary.begun.wait(DEADLINE_S)
    daemon.submit(2, SHORT)
    daemon.send(Tokenize(3, "abc", False, False, False))
    assert {daemon.end().id, daemon.end().id} == {2, 3}
    daemon.send(Cancel(1))
    daemon.vocabulary.go.set()
    ended = daemon.end()
    assert isinstance(ended, Done) and ended.id == 1 and ended.result.finish_reason == "cancelled"
    assert ended.result.prompt_tokens > LONG


def test_others_are_answered_while_a_text_is_tokenized(daemon: Daemon) -> None:
    daemon.send(Tokenize(1, "x" * 3 * LONG, False, False, False))
    assert daemon.vocabulary.begun.wait(DEADLINE_S)
    daemon.submit(2, SHORT)
    assert daemon.end().id == 2
    daemon.vocabulary.go.set()
    ended = daemon.end()
    assert isinstance(ended, Tokenized) and ended.id == 1 and len(ended.tokens) == 3 * LONG


def test_a_prompt_that_is_too_long_is_refused_from_there_as_well(daemon: Daemon) -> None:
    daemon.vocabulary.go.set()
    daemon.submit(1, TextPrompt("x" * 3 * LONG))
    ended = daemon.end()
    assert isinstance(ended, Failed) and ended.error["code"] == "context_exceeded"


def test_it_counts_as_work_that_gets_on(daemon: Daemon) -> None:
    daemon.send(Tokenize(1, "x" * 3 * LONG, False, False, False))
    assert daemon.vocabulary.begun.wait(DEADLINE_S)
    while not (isinstance(first := daemon.next(), Heartbeat)):
        pass
    while not (isinstance(beat := daemon.next(), Heartbeat) and beat.steps > first.steps):
        pass
