"""A worker that tokenizes a long text goes on with everybody else's requests meanwhile."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from localspec.daemon.workers.worker import STOP_S
from localspec.engine.engine import Engine
from localspec.engine.learning import Learning
from localspec.memory.memory import stats
from localspec.protocol import frames
from localspec.protocol.frames import Cancel, TokenizedFrame, TokenizeFrame
from localspec.protocol.options import Options
from localspec.protocol.requests import ChatPrompt, Done, Failed, Message, Prompt, Request, TextPrompt
from localspec.worker import threads
from localspec.worker.channel import Channel, Pulse
from localspec.worker.loop import Worker
from localspec.worker.threads import LONG, takes_long
from tests.constraints.test_trial import COMMON, HOSTILE
from tests.memory.tables import memory_in, refuse
from tests.toy import ToyBackend, ToyVocabulary
from tests.waiting import DEADLINE_S
from tests.worker.test_channel import read

SHORT = TextPrompt("abc")


class Slow(ToyVocabulary):
    """A tokenizer that finishes a long text when the test permits it."""

    def __init__(self) -> None:
        self.begun, self.full, self.go = threading.Event(), threading.Event(), threading.Event()
        self.long = 0
        """long texts that were begun"""

    def encode(self, text: str, *, special: bool) -> list[int]:
        if "x" * LONG in text:
            self.long += 1
            self.begun.set()
            if self.long == 2:
                self.full.set()
            assert self.go.wait(DEADLINE_S)
        return list(text.encode())


class Daemon:
    """The daemon's end of a worker that runs in a thread."""

    def __init__(
        self, sock: socket.socket, stream: BinaryIO, vocabulary: Slow, worker: threading.Thread
    ) -> None:
        self._socket, self._stream = sock, stream
        self.vocabulary, self.worker = vocabulary, worker

    def send(self, message: frames.ToWorker) -> None:
        self._socket.sendall(frames.encode_frame(message))

    def submit(self, id: int, prompt: Prompt, source: str = "run", grammar: str | None = None) -> None:
        # A sample of the toy model may be empty.
        options = Options(max_tokens=4, temperature=0.0, grammar=grammar)
        self.send(frames.Submit(id, Request(prompt=prompt, options=options, source=source)))

    def next(self) -> frames.FromWorker:
        return read(self._stream)

    def end(self) -> tuple[int, frames.Answer]:
        """The job that ends next, and its end."""
        while not isinstance(frame := self.next(), frames.RequestEvent):
            pass
        return frame.id, frame.event


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    ours, remote = socket.socketpair()
    ours.settimeout(DEADLINE_S)
    vocabulary = Slow()
    channel = Channel(remote, exit_s=3600.0)
    with ours, ours.makefile("rb") as stream:
        target = ToyBackend(n_ctx=2 * LONG, vocabulary=vocabulary)
        learning = Learning(target, memory=memory_in(tmp_path))
        engine = Engine(target, learning=learning)
        worker = threading.Thread(target=Worker(channel, engine, Pulse(channel)).run, daemon=True)
        worker.start()
        daemon = Daemon(ours, stream, vocabulary, worker)
        yield daemon
        vocabulary.go.set()
        if worker.is_alive():
            daemon.send(frames.Stop())
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
    daemon.send(TokenizeFrame(3, "abc", False, False, False))
    daemon.send(TokenizeFrame(4, "y" * 2 * LONG, False, False, False))
    ends = dict(daemon.end() for _ in range(3))
    assert (
        isinstance(text := ends[4], TokenizedFrame) and len(text.tokens) == 2 * LONG and {2, 3} < ends.keys()
    )
    daemon.send(Cancel(1))
    daemon.vocabulary.go.set()
    id, ended = daemon.end()
    assert isinstance(ended, Done) and id == 1 and ended.result.finish_reason == "cancelled"
    assert ended.result.prompt_tokens > LONG


def test_others_are_answered_while_a_template_takes_too_much(daemon: Daemon) -> None:
    loops = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    daemon.vocabulary.chat_template = loops
    daemon.submit(1, ChatPrompt((Message("user", "hi"),)))
    daemon.submit(2, SHORT)
    assert daemon.end()[0] == 2
    id, ended = daemon.end()
    assert isinstance(ended, Failed) and id == 1 and "took more than 2 s" in ended.error["message"]


def test_a_prompt_that_is_too_long_is_refused_from_there_as_well(daemon: Daemon) -> None:
    daemon.vocabulary.go.set()
    daemon.submit(1, TextPrompt("x" * 3 * LONG))
    _, ended = daemon.end()
    assert isinstance(ended, Failed) and ended.error["code"] == "context_exceeded"


def test_what_cannot_be_read_fails_alone(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    def encode(text: str, *, special: bool) -> list[int]:
        raise ZeroDivisionError("odd")

    daemon.vocabulary.go.set()
    with monkeypatch.context() as patched:
        patched.setattr(daemon.vocabulary, "encode", encode)
        for id, prompt in ((1, SHORT), (2, long_prompt("text"))):
            daemon.submit(id, prompt)
            _, ended = daemon.end()
            assert isinstance(ended, Failed) and "ZeroDivisionError: odd" in ended.error["message"]
    daemon.submit(3, SHORT)
    assert isinstance(daemon.end()[1], Done)


def test_it_counts_as_work_that_gets_on(daemon: Daemon) -> None:
    daemon.send(TokenizeFrame(1, "x" * 3 * LONG, False, False, False))
    assert daemon.vocabulary.begun.wait(DEADLINE_S)
    while not (isinstance(first := daemon.next(), frames.Heartbeat)):
        pass
    while not (isinstance(beat := daemon.next(), frames.Heartbeat) and beat.steps > first.steps):
        pass


def test_it_can_be_stopped_while_a_text_is_tokenized_and_has_learnt(daemon: Daemon, tmp_path: Path) -> None:
    daemon.submit(1, TextPrompt("abc" * 20))
    assert daemon.end()[0] == 1
    for id in (2, 3, 4):
        daemon.submit(id, long_prompt("text"))
    assert daemon.vocabulary.full.wait(DEADLINE_S)
    daemon.send(frames.Stop())
    daemon.worker.join(STOP_S)
    assert not daemon.worker.is_alive()
    (table,) = stats(tmp_path, refuse)
    assert table.sources["run"] > 10
    assert daemon.vocabulary.long == 2


def test_what_is_forgotten_while_it_is_tokenized_is_not_learnt(daemon: Daemon, tmp_path: Path) -> None:
    for id, source in ((1, "chat:1"), (2, "chat:2")):
        daemon.submit(id, long_prompt("text"), source)
    assert daemon.vocabulary.begun.wait(DEADLINE_S)
    daemon.send(frames.Forget("chat:1"))
    daemon.submit(3, SHORT)
    assert daemon.end()[0] == 3
    daemon.vocabulary.go.set()
    assert {daemon.end()[0], daemon.end()[0]} == {1, 2}
    daemon.send(frames.Stop())
    daemon.worker.join(DEADLINE_S)
    (table,) = stats(tmp_path, refuse)
    assert "chat:2" in table.sources and "chat:1" not in table.sources


def test_what_is_cancelled_before_its_turn_is_not_tokenized(daemon: Daemon) -> None:
    daemon.submit(1, long_prompt("text"))
    daemon.submit(4, long_prompt("text"))
    assert daemon.vocabulary.full.wait(DEADLINE_S)
    daemon.submit(2, long_prompt("chat"))
    daemon.send(TokenizeFrame(3, "x" * 3 * LONG, False, False, False))
    daemon.send(Cancel(2))
    daemon.send(Cancel(3))
    ends = dict((daemon.end(), daemon.end()))
    cancelled, failed = ends[2], ends[3]
    assert isinstance(cancelled, Done) and cancelled.result.finish_reason == "cancelled"
    assert isinstance(failed, Failed) and failed.error["code"] == "gone"
    daemon.vocabulary.go.set()
    assert {daemon.end()[0], daemon.end()[0]} == {1, 4} and daemon.vocabulary.long == 2


def test_a_form_that_is_slow_to_compile_lets_others_pass_and_ends_with_its_client(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "SLOW_S", 600.0)
    for id in (1, 2, 3):
        daemon.submit(id, SHORT, grammar=f"start: T\nT: {COMMON.replace('w', 'xyz'[id - 1])}")
    daemon.submit(4, SHORT, grammar="start: /[a-c]+/")
    assert daemon.end()[0] == 4
    for id in (3, 2, 1):
        daemon.send(Cancel(id))
        cancelled, ended = daemon.end()
        assert cancelled == id and isinstance(ended, Done) and ended.result.finish_reason == "cancelled"


def test_a_form_that_takes_too_much_fails_alone(daemon: Daemon) -> None:
    daemon.submit(1, SHORT, grammar=HOSTILE["a chain of rules that uses up the stack"])
    _, ended = daemon.end()
    assert isinstance(ended, Failed) and ended.error["message"] == threads.TOO_COMPLEX
    daemon.submit(2, SHORT, grammar="start: /[a-c]+/")
    assert isinstance(daemon.end()[1], Done)


def test_all_that_takes_long_counts() -> None:
    assert takes_long(ChatPrompt((Message("user", "hi"),)), Options())
    assert takes_long(TextPrompt("x" * LONG + "x"), Options())
    assert takes_long(TextPrompt("hi"), Options(schema={}))
    assert not takes_long(TextPrompt("x" * LONG), Options())
