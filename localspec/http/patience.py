"""Bounds on HTTP connections: their number, silent ones, what a request sends, and answers that are not read.

All connections share the daemon's event loop, so that no read, and no request, may take much of it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from localspec.http.endpoint import MAX_BODY

HEAD_S = 10.0
"""the time in which a request's head must arrive; uvicorn itself waits for ever"""
PROGRESS_S = 20.0
"""a connection is aborted if the client reads nothing of a waiting answer for so long"""
REST_S = 2.0
"""after an answer to a request that is not complete, its rest is dropped unread for so long"""
CONNECTIONS = 128
"""the number of open connections; requests on further ones are answered with status 503"""
REFUSED = 2 * CONNECTIONS
"""the number from which on further ones are closed unread: they are files of the daemon's process"""
READ = 16 << 10
"""bytes that are parsed at once: 4 ms where each chunk has one byte"""
MAX_HEAD = 64 << 10
"""bytes of a request's head"""
MAX_REQUEST = MAX_BODY + (1 << 20)
"""bytes of a request, with the heads of its chunks"""
INVALID = "Invalid HTTP request received."
MOST_PIECES = 16 << 10
"""headers, chunks and reads of one request"""


class BoundedProtocol(HttpToolsProtocol, asyncio.BufferedProtocol):
    """HTTP/1.1 on one connection; ends it if a request is missing, slow or too large, or if its answer is not
    read. After an answer it may be idle for as long as uvicorn permits. What comes before a request is
    answered, or behind one that is answered though its body is not complete, such as one that was refused, is
    not parsed: the connection ends with the answer. A request for another protocol is answered by
    HTTP/1.1."""

    _waiting: asyncio.TimerHandle | None = None
    _watching: asyncio.TimerHandle | None = None
    _progress: tuple[int, int] | None = None
    _drained = 0
    _received = _pieces = 0
    """of the request that is read: bytes, and parts"""
    _dropping = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > REFUSED:
            transport.abort()
            return
        self._buffer = bytearray(READ)
        self._wait()
        self._watch()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._received += nbytes
        if self._dropping:
            if self._received > MAX_REQUEST:
                self.transport.abort()
            return
        if self._received > (MAX_REQUEST if self._is_answering() else MAX_HEAD):
            self.send_400_response(f"The request has more than {self._received - nbytes} bytes.")
            return
        self._parse(bytes(memoryview(self._buffer)[:nbytes]))
        if self._is_answering():
            self._stop_waiting()
        elif self._waiting is None:
            self._wait()

    def _parse(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            method, version = self.parser.get_method(), self.parser.get_http_version().encode()
            if method == b"CONNECT":
                self.send_400_response(INVALID)
                return
            # The parser ends here: the request goes on in another one, without the header.
            kept = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
            head = b"%b %b HTTP/%b\r\n%b\r\n" % (method, self.url, version, b"".join(kept))
            self.parser = HttpRequestParser(self)
            self._parse(head + data[upgrade.args[0] :])
        except HttpParserError:
            self.send_400_response(INVALID)

    def _should_upgrade(self) -> bool:
        return True  # so that no request begins

    def on_message_begin(self) -> None:
        if self._is_answering():
            raise ValueError
        self._received = self._pieces = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_piece()
        super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._count_piece()
        super().on_body(body)

    def _count_piece(self) -> None:
        """Raise :class:`ValueError`, at which the parser stops, for one piece more than possible."""
        self._pieces += 1
        if self._pieces > MOST_PIECES:
            raise ValueError

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not HTTP, or too large, and end its work. One that is complete is answered
        before the connection ends."""
        if self._is_answering() and not self.cycle.more_body:
            self._dropping = True
            return
        if self._pieces > MOST_PIECES:
            msg = f"The request has more than {MOST_PIECES} headers and chunks: send larger chunks."
        if self._is_answering():
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.abort()
                return
        head = f"HTTP/1.1 400 Bad Request\r\nContent-Length: {len(msg)}\r\nConnection: close\r\n\r\n"
        self.transport.write((head + msg).encode())
        self._drop_rest()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if (self._dropping or self.cycle.more_body) and not self.transport.is_closing():
            self._drop_rest()

    def _drop_rest(self) -> None:
        """End the connection for writing, and drop what still comes, for the client to read the answer."""
        self._dropping, self._received = True, 0
        self._unset_keepalive_if_required()
        self._stop_waiting()
        self.transport.write_eof()
        self.flow.resume_reading()
        self._wait(REST_S)

    def resume_writing(self) -> None:
        self._drained += 1
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._watching is not None:
            self._watching.cancel()
        super().connection_lost(exc)

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self, seconds: float = HEAD_S) -> None:
        self._waiting = self.loop.call_later(seconds, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _watch(self) -> None:
        """Abort the connection, even a closing one, if output waits and nothing was read since last time."""
        unsent = self.transport.get_write_buffer_size()
        progress = (self._drained, unsent) if unsent else None
        if progress is not None and progress == self._progress:
            self.transport.abort()
            return
        self._progress = progress
        self._watching = self.loop.call_later(PROGRESS_S, self._watch)
