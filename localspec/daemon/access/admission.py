"""Bounds on connections that have not shaken hands yet, so that they take no places of clients.

Each kind of peer has places of its own: other users on TCP, this user on TCP, and the Unix socket. If all of
a kind are taken the newest connection replaces the least recently used one without a running request; if all
have one the newest is closed. Descriptors are kept in reserve: with no others left, connections over the Unix
socket are still accepted.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from localspec.daemon import files
from localspec.daemon.access.peer import Peers

log = logging.getLogger(__name__)

PLACES = {"others": 8, "owner": 32, "unix": 32}
"""connections of each kind that may be shaking hands; as many more may be closing for newer ones"""
RESERVE = 8
RESERVE_SHARE = 32
"""the reserve is at most one in so many of the process's descriptors"""
UNIX = getattr(socket, "AF_UNIX", None)
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
LOG_S = 60.0
"""seconds between two log lines of one reason for closing connections"""


class Guest(socket.socket):
    """An accepted connection; ``on_close`` is called when it is closed; ``at_work``: it is not evicted."""

    on_close: Callable[[], None] | None = None
    at_work = False

    def close(self) -> None:
        super().close()
        on_close, self.on_close = self.on_close, None
        if on_close is not None:
            on_close()


class Admission:
    """The connections of one process that are not admitted yet: at most ``places`` of each kind."""

    def __init__(
        self, places: Mapping[str, int] = PLACES, lacking: str = "before they had shaken hands"
    ) -> None:
        self._places = places
        self._lacking = lacking
        self.peers = Peers()
        self._waiting: dict[str, dict[int, Guest]] = {kind: {} for kind in places}
        """by kind and descriptor, the least recently used first"""
        self._closing = dict.fromkeys(places, 0)
        self._refused: Counter[str] = Counter()
        """connections closed since that was logged, by the reason"""
        self._logged: dict[str, float] = {}
        """the time of the last log line of each reason"""
        self._reserve: list[int] = []
        self._reserved = min(RESERVE, files.limit(RESERVE * RESERVE_SHARE) // RESERVE_SHARE)
        self.refill()

    def enter(self, guest: Guest, kind: str) -> bool:
        """Count ``guest`` until it is admitted or closed; returns False if it must be closed at once."""
        waiting = self._waiting[kind]
        descriptor = guest.fileno()
        places = self._places[kind]
        if len(waiting) >= places:
            self._refuse(f"{places} of {kind} were waiting already")
            if self._closing[kind] >= places or not self._evict(kind):
                return False
        waiting[descriptor] = guest
        guest.on_close = lambda: self._left(kind, descriptor)
        return True

    def kind(self, guest: Guest) -> str:
        """The places that an accepted connection counts for."""
        if guest.family == UNIX:
            return "unix"
        user = self.peers.user_of(guest)
        if user is None:  # a kernel that reports no users reports none of the owner's connections either
            return "others" if self.peers.answers else "owner"
        return "owner" if user == os.geteuid() else "others"

    def touch(self, descriptor: int, *, at_work: bool = False) -> None:
        """Note that a connection is used: others are evicted before it; while ``at_work`` it is never."""
        for waiting in self._waiting.values():
            if (guest := waiting.pop(descriptor, None)) is not None:
                guest.at_work = at_work
                waiting[descriptor] = guest

    def admit(self, descriptor: int) -> None:
        """Release the place of a connection whose handshake is complete.

        As a client it is no longer evicted, nor counted here.
        """
        for waiting in self._waiting.values():
            if (guest := waiting.pop(descriptor, None)) is not None:
                guest.on_close = self.refill

    def spare(self) -> bool:
        """Release a descriptor of the reserve; returns True if another is left to accept others."""
        if self._reserve:
            os.close(self._reserve.pop())
        return len(self._reserve) > 0

    def out_of_descriptors(self) -> None:
        """Note that a connection was closed because the process has no descriptor for it."""
        self.refill()
        self._refuse("the process has reached its limit of open files")

    def close(self) -> None:
        """Release the reserve."""
        self.peers.close()
        while self._reserve:
            os.close(self._reserve.pop())

    def _evict(self, kind: str) -> bool:
        """Close the least recently used connection without a running request; False if there is none."""
        waiting = self._waiting[kind]
        descriptor = next((each for each, guest in waiting.items() if not guest.at_work), None)
        if descriptor is None:
            return False
        guest = waiting.pop(descriptor)
        self._closing[kind] += 1
        guest.on_close = lambda: self._evicted(kind)
        with contextlib.suppress(OSError):  # its peer has left already
            guest.shutdown(socket.SHUT_RDWR)
        return True

    def _evicted(self, kind: str) -> None:
        self._closing[kind] -= 1
        self.refill()

    def _left(self, kind: str, descriptor: int) -> None:
        self._waiting[kind].pop(descriptor, None)
        self.refill()

    def refill(self) -> None:
        """Fill the reserve as far as descriptors are available."""
        with contextlib.suppress(OSError):
            while len(self._reserve) < self._reserved:
                self._reserve.append(os.open(os.devnull, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)))

    def _refuse(self, why: str) -> None:
        """Count a closed connection; log each reason at most once in :data:`LOG_S`."""
        self._refused[why] += 1
        now = time.monotonic()
        if now - self._logged.get(why, -LOG_S) >= LOG_S:
            log.warning("%d connections were closed %s: %s", self._refused[why], self._lacking, why)
            self._logged[why], self._refused[why] = now, 0


class Listening(socket.socket):
    """A listening socket; an :class:`Admission` counts its connections from their start."""

    admission: Admission

    @classmethod
    def of(cls, listening: socket.socket, admission: Admission) -> Listening:
        """Make one of the descriptor of ``listening``, which is detached."""
        mine = cls(listening.family, listening.type, listening.proto, fileno=listening.detach())
        mine.admission = admission
        return mine

    def accept(self) -> tuple[socket.socket, Any]:
        """As :meth:`socket.socket.accept`. Raises BlockingIOError after a refused connection, so that the
        event loop serves others before the next one."""
        accepted, address = self._accepted()
        guest = Guest(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        if not (_is_connected(guest) and self.admission.enter(guest, self.admission.kind(guest))):
            guest.close()
            raise BlockingIOError(errno.EAGAIN, "refused")
        return guest, address

    def _accepted(self) -> tuple[socket.socket, Any]:
        try:
            return super().accept()
        except OSError as error:
            if error.errno not in EXHAUSTED:
                raise
        has_more = self.admission.spare()
        try:
            accepted, address = super().accept()
        except OSError:  # no connection waits: the kernel takes a descriptor before it checks that
            self.admission.refill()
            raise BlockingIOError(errno.EAGAIN, "no connection waits") from None
        if has_more and self.family == UNIX:
            return accepted, address
        accepted.close()
        self.admission.out_of_descriptors()
        raise BlockingIOError(errno.EAGAIN, "no descriptor is left")


def _is_connected(guest: Guest) -> bool:
    """Return False if the peer has reset the connection; always True for a Unix socket."""
    if guest.family == UNIX:
        return True
    try:
        guest.getpeername()
    except OSError:
        return False
    return True
