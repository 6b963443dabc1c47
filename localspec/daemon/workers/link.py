"""The daemon's end of the socket to a worker: frames are decoded from the bytes that the event loop reads."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

import msgspec

from localspec.protocol import frames
from localspec.protocol.frames import FromWorker


class Link(asyncio.Protocol):
    """Calls ``on_frame`` for each frame as it arrives, without a task in between.

    ``ended`` gets None when the worker closes its end, or the error of a damaged frame
    (:class:`msgspec.DecodeError`), of ``on_frame``, or of the socket (:class:`OSError`).
    """

    def __init__(self, on_frame: Callable[[FromWorker], None]) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_frame = on_frame
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, sock: socket.socket, on_frame: Callable[[FromWorker], None]) -> Link:
        """A link over ``sock``, which it closes."""
        loop = asyncio.get_running_loop()
        _, link = await loop.create_connection(lambda: cls(on_frame), sock=sock)
        return link

    def write(self, frame: bytes) -> None:
        """Queue a frame; one for a closed link is lost."""
        if self._transport is not None:
            self._transport.write(frame)

    def close(self) -> None:
        """Send what is queued, then close."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            with memoryview(self._buffer) as view:
                read = self._read(view)
            del self._buffer[:read]
        except Exception as error:  # of any kind: the jobs must not wait for ever
            self._end(error)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error)

    def _read(self, view: memoryview) -> int:
        """Take the whole frames in ``view``; returns the number of bytes they take."""
        at, size = 0, frames.HEADER.size
        while len(view) - at >= size and not self.ended.done():
            (length,) = frames.HEADER.unpack_from(view, at)
            if length > frames.MAX_FRAME:
                raise msgspec.DecodeError(f"a frame of {length} bytes")
            if len(view) - at - size < length:
                break
            at += size + length
            with view[at - length : at] as body:
                frame = frames.from_worker_decoder.decode(body)
            self._on_frame(frame)
        return at

    def _end(self, error: Exception | None) -> None:
        if self.ended.done():
            return
        if error is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)
        if self._transport is not None:
            with contextlib.suppress(RuntimeError):
                self._transport.pause_reading()
