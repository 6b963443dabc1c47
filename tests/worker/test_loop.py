"""The worker's loop over a real socket pair, with the toy engine."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from localspec.protocol import frames
from localspec.protocol.frames import GrantTurn, Submit
from localspec.protocol.requests import Done
from localspec.worker.channel import Channel, Pulse
from localspec.worker.loop import Worker
from tests.toys import request, small_markov, toy_engine
from tests.waiting import DEADLINE_S
from tests.worker.test_channel import read

FREE = GrantTurn(0, float("inf"))
Send = Callable[..., None]
Receive = Callable[[], frames.FromWorker]


@pytest.fixture
def daemon() -> Iterator[tuple[Send, Receive]]:
    """Functions that send frames to a worker, and return the next one from it that is no heartbeat."""
    ours, workers = socket.socketpair()
    ours.settimeout(DEADLINE_S)
    channel = Channel(workers, exit_s=3600.0)  # it would end this process
    thread = threading.Thread(target=Worker(channel, toy_engine(small_markov(1)), Pulse(channel)).run)
    thread.start()

    def send(*sent: frames.ToWorker) -> None:
        ours.sendall(b"".join(map(frames.encode_frame, sent)))

    with ours, ours.makefile("rb") as stream:

        def receive() -> frames.FromWorker:
            while isinstance(frame := read(stream), frames.Heartbeat):
                pass
            return frame

        yield send, receive
        send(frames.Stop())
        thread.join()


def finish(receive: Receive) -> tuple[str, str]:
    """The text of the request that ends next, and why it ended."""
    while True:
        frame = receive()
        if isinstance(frame, frames.RequestEvent):
            assert isinstance(frame.event, Done)
            return frame.event.result.text, frame.event.result.finish_reason


def test_a_worker_waits_for_its_turn(daemon: tuple[Send, Receive]) -> None:
    send, receive = daemon
    send(GrantTurn(0, 0.0), Submit(1, request("x", max_tokens=2)))
    assert isinstance(over := receive(), frames.TurnOver) and over.number == 0
    send(GrantTurn(1, 0.0))
    assert isinstance(over := receive(), frames.TurnOver) and over.number == 1
    send(FREE)
    assert finish(receive)[1] == "length"


def test_frames_are_taken_while_it_waits(daemon: tuple[Send, Receive]) -> None:
    send, receive = daemon
    send(GrantTurn(0, 0.0), Submit(1, request("x")), Submit(2, request("x", max_tokens=1)), frames.Cancel(1))
    assert isinstance(receive(), frames.TurnOver)
    send(FREE)
    assert finish(receive) == ("", "cancelled")
    assert finish(receive)[1] == "length"


def test_a_worker_without_requests_ends_no_turn(daemon: tuple[Send, Receive]) -> None:
    send, receive = daemon
    send(GrantTurn(1, 0.0), FREE, Submit(1, request("x", max_tokens=1)))
    assert finish(receive)[1] == "length"
