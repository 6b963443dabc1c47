"""Frames of a worker, however the socket cuts them."""

from __future__ import annotations

import asyncio
import socket

import msgspec
import pytest

from localspec.daemon.workers.link import Link
from localspec.protocol.frames import HEADER, MAX_FRAME, FromWorker, Heartbeat, encode_frame, streamed
from localspec.protocol.requests import Delta, Token
from tests.waiting import soon, until

FRAMES: list[FromWorker] = [
    streamed(1, Delta("é", (Token(5, "target", 1),))),
    Heartbeat(3, 0.5),
    streamed(2, Delta("x" * 5000, ())),
]


@pytest.mark.parametrize("size", [1, 3, 7, 4096, 100_000])
async def test_frames_arrive_whole_whatever_the_pieces(size: int) -> None:
    ours, remote = socket.socketpair()
    with remote:
        taken: list[FromWorker] = []
        link = await Link.open(ours, taken.append)
        data = b"".join(map(encode_frame, FRAMES * 3))
        for at in range(0, len(data), size):
            remote.sendall(data[at : at + size])
            await asyncio.sleep(0)
        await until(lambda: len(taken) == 9, "all have arrived")
        assert taken == FRAMES * 3
        link.write(b"answer")
        await until(lambda: remote.recv(6, socket.MSG_DONTWAIT | socket.MSG_PEEK) == b"answer", "written")
        remote.shutdown(socket.SHUT_RDWR)
        await soon(link.ended)
        link.close()


@pytest.mark.parametrize(
    "data", [encode_frame(Heartbeat(1, 0.0))[:4] + b"\xc1" * 40, HEADER.pack(MAX_FRAME + 1)]
)
async def test_a_damaged_frame_is_the_end_and_nothing_after_it_is_taken(data: bytes) -> None:
    ours, remote = socket.socketpair()
    with remote:
        taken: list[FromWorker] = []
        link = await Link.open(ours, taken.append)
        remote.sendall(encode_frame(Heartbeat(1, 0.0)) + data + encode_frame(Heartbeat(2, 0.0)))
        with pytest.raises(msgspec.DecodeError):
            await soon(link.ended)
        assert taken == [Heartbeat(1, 0.0)]
        link.close()
