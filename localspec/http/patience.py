"""Bounds on HTTP connections: silent ones, unauthenticated ones, and answers that are not read."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from localspec.daemon.access.admission import Admission
from localspec.http.gate import ADMIT, WORK

HEAD_S = 10.0
"""the time in which a request's head must arrive; uvicorn itself waits for ever"""
PROGRESS_S = 20.0
"""a connection is aborted if the client reads nothing of a waiting answer for so long"""
PLACES = {"others": 32, "owner": 128}
"""the number of connections without a verified token, of other users and of this one; a newer one evicts the
one that was used least recently and has no running request"""


class Impatient(H11Protocol):
    """HTTP/1.1 on one connection; closes it if a request is missing or slow, or if its answer is not read.

    After an answer it may be idle for as long as uvicorn permits."""

    admission: Admission
    _waiting: asyncio.TimerHandle | None = None
    _watching: asyncio.TimerHandle | None = None
    _progress: tuple[int, ...] | None = None
    _drained = 0
    _is_at_work = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.app_state = {**self.app_state, ADMIT: self._admit, WORK: self._work}

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._socket = transport.get_extra_info("socket")
        self._descriptor = self._socket.fileno()
        self._wait()
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_answering():
            self._touch()
            self._stop_waiting()
        elif self._waiting is None:
            self._wait()

    def on_response_complete(self) -> None:
        self._is_at_work = False
        self._touch()
        super().on_response_complete()

    def resume_writing(self) -> None:
        self._drained += 1
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._watching is not None:
            self._watching.cancel()
        super().connection_lost(exc)

    def _admit(self) -> None:
        """Release the connection's place: its token was verified."""
        if not self.transport.is_closing():
            self.admission.admit(self._descriptor)

    def _work(self) -> None:
        """Mark the request as running: the connection is not evicted until it is answered."""
        self._is_at_work = True
        self._touch()

    def _touch(self) -> None:
        if not self.transport.is_closing():  # later its descriptor may be another connection's
            self.admission.touch(self._descriptor, at_work=self._is_at_work)

    def _is_answering(self) -> bool:
        """Return True if a request's head has arrived and its answer is not complete."""
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(HEAD_S, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _watch(self) -> None:
        """Abort the connection, even a closing one, if output waits and nothing was read since last time."""
        progress = self._progress_of_reading()
        if progress is not None and progress == self._progress:
            self.transport.abort()
            return
        self._progress = progress
        self._watching = self.loop.call_later(PROGRESS_S, self._watch)

    def _progress_of_reading(self) -> tuple[int, ...] | None:
        """Return numbers that change when the peer reads; None if no output waits.

        The size of the buffer alone is not enough: the kernel accepts more only when a third of its own
        buffer, which is megabytes, was read.
        """
        unsent = self.transport.get_write_buffer_size()
        if not unsent:
            return None
        read = self.admission.peers.read_by(self._socket)
        return (self._drained, unsent) if read is None else (read,)


def impatient(counted: Admission) -> type[Impatient]:
    """Return the protocol class of a server whose connections ``counted`` counts."""

    class Counted(Impatient):
        admission = counted

    return Counted
