"""Read the frames that a worker sends, as the daemon does."""

from __future__ import annotations

from typing import BinaryIO

from localspec.protocol.frames import HEADER, FromWorker, from_worker_decoder


def read(stream: BinaryIO) -> FromWorker:
    (length,) = HEADER.unpack(stream.read(HEADER.size))
    frame: FromWorker = from_worker_decoder.decode(stream.read(length))
    return frame
