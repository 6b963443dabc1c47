"""Posted frames: in order with those that are sent, none lost, none delayed for long."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import BinaryIO

import pytest

from localspec.protocol.frames import HEADER, FromWorker, Heartbeat, from_worker_decoder, make_streamed
from localspec.protocol.requests import Degraded, Delta, StreamEvent, Token
from localspec.worker import channel as channel_module
from localspec.worker.channel import MERGED, Channel, Posted, frames_of
from tests.waiting import DEADLINE_S


@pytest.fixture
def ends() -> Iterator[tuple[Channel, BinaryIO]]:
    ours, remote = socket.socketpair()
    ours.settimeout(DEADLINE_S)
    with ours, remote, ours.makefile("rb") as stream:
        yield Channel(remote, exit_s=3600.0), stream


def test_a_posted_frame_is_sent_without_another(ends: tuple[Channel, BinaryIO]) -> None:
    channel, stream = ends
    for n in range(20):
        channel.post(Heartbeat(n, 0.0))
        assert read(stream) == Heartbeat(n, 0.0)


def test_posted_and_sent_frames_keep_their_order(ends: tuple[Channel, BinaryIO]) -> None:
    channel, stream = ends
    frames: list[FromWorker] = [Heartbeat(n, 0.0) for n in range(300)]
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


def test_where_the_thread_does_not_get_to_run_the_next_post_sends_both(
    ends: tuple[Channel, BinaryIO],
) -> None:
    channel, stream = ends
    channel._posted = threading.Event()  # the thread waits for the old one
    channel._posted.set()
    channel._outbox.append(Heartbeat(1, 0.0))
    channel.post(Heartbeat(2, 0.0))
    assert not channel._outbox, "both were sent before the call returned"
    assert [read(stream), read(stream)] == [Heartbeat(1, 0.0), Heartbeat(2, 0.0)]


def test_text_of_a_request_is_merged_up_to_its_next_other_event() -> None:
    def text(text: str) -> Delta:
        return Delta(text, (Token(1, "target", len(text)),))

    degraded, beat = Degraded("draft", "lookup", "it failed"), Heartbeat(1, 0.0)
    said: list[tuple[int, StreamEvent]] = [
        (1, text("a")),
        (2, text("A")),
        (1, text("b")),
        (1, degraded),
        (2, text("B")),
        (1, text("c")),
    ]
    assert frames_of([beat, *(Posted(id, event) for id, event in said), beat]) == [
        beat,
        make_streamed(1, Delta("ab", 2 * text("a").tokens)),
        make_streamed(2, Delta("AB", 2 * text("A").tokens)),
        make_streamed(1, degraded),
        make_streamed(1, text("c")),
        beat,
    ]


def test_a_merged_delta_has_an_end() -> None:
    tokens = (Token(1, "target", 0),) * (MERGED // 2)
    assert len(frames_of(5 * [Posted(1, Delta("", tokens))])) == 3


def test_deltas_of_two_channels_stay_apart() -> None:
    thought, answer = Delta("Hm.", (), "thinking"), Delta("Hi", ())
    assert frames_of([Posted(1, each) for each in (thought, thought, answer)]) == [
        make_streamed(1, Delta("Hm.Hm.", (), "thinking")),
        make_streamed(1, answer),
    ]


def read(stream: BinaryIO) -> FromWorker:
    (length,) = HEADER.unpack(stream.read(HEADER.size))
    frame: FromWorker = from_worker_decoder.decode(stream.read(length))
    return frame
