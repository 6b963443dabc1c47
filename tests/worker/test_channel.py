"""Posted frames: in order with those that are sent, none lost, none delayed for long."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import BinaryIO

import pytest

from localspec.protocol.events import Delta
from localspec.protocol.frames import FromWorker, Heartbeat, RequestEvent
from localspec.worker import channel as channel_module
from localspec.worker.channel import Channel
from tests.waiting import DEADLINE_S
from tests.worker.reading import read


@pytest.fixture
def ends() -> Iterator[tuple[Channel, BinaryIO]]:
    ours, theirs = socket.socketpair()
    ours.settimeout(DEADLINE_S)
    with ours, theirs, ours.makefile("rb") as stream:
        yield Channel(theirs, exit_s=3600.0), stream


def test_a_posted_frame_is_sent_without_another(ends: tuple[Channel, BinaryIO]) -> None:
    channel, stream = ends
    for n in range(20):
        channel.post(Heartbeat(n, 0.0))
        assert read(stream) == Heartbeat(n, 0.0)


def test_posted_and_sent_frames_keep_their_order(ends: tuple[Channel, BinaryIO]) -> None:
    channel, stream = ends
    frames: list[FromWorker] = [RequestEvent(1, Delta(str(n), ())) for n in range(300)]
    for n, frame in enumerate(frames):
        (channel.send if n % 7 == 0 else channel.post)(frame)
    assert [read(stream) for _ in frames] == frames


def test_posted_frames_wait_to_be_sent_together(
    ends: tuple[Channel, BinaryIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "PACE_S", 3600.0)
    channel, stream = ends
    channel.send(Heartbeat(0, 0.0))
    for n in range(1, 4):
        channel.post(Heartbeat(n, 0.0))
    assert len(channel._outbox) == 3
    channel.send(Heartbeat(4, 0.0))
    assert [read(stream) for _ in range(5)] == [Heartbeat(n, 0.0) for n in range(5)]


def test_where_the_thread_does_not_get_to_run_the_next_post_sends_both() -> None:
    ours, theirs = socket.socketpair()
    ours.settimeout(DEADLINE_S)
    with ours, theirs, ours.makefile("rb") as stream:
        channel = Channel(theirs, exit_s=3600.0)
        channel._posted = threading.Event()  # the thread waits for the old one
        channel._posted.set()
        channel._outbox.append(Heartbeat(1, 0.0))
        channel.post(Heartbeat(2, 0.0))
        assert not channel._outbox, "both were sent before the call returned"
        assert [read(stream), read(stream)] == [Heartbeat(1, 0.0), Heartbeat(2, 0.0)]
