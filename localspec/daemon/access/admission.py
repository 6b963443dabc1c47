"""Bounds on connections that have not shaken hands yet: whoever lacks the token takes no place of a client.

Each kind of peer has places of its own: other users on TCP, this user on TCP, and the Unix socket. Where all
of a kind are taken the newest connection takes the place of the one that was used least recently and has no
request at work; where all have one the newest is closed. Descriptors are kept in reserve: with no others
left, connections over the Unix socket are accepted all the same.
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
"""the reserve is no larger than one in so many of the descriptors that the process may have"""
UNIX = getattr(socket, "AF_UNIX", None)
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
TELL_S = 60.0
"""seconds between two log lines of one reason for closing connections"""


class Guest(socket.socket):
    """An accepted connection; ``on_close`` is called when it is closed, one ``at_work`` is never evicted."""

    on_close: Callable[[], None] | None = None
    at_work = False

    def close(self) -> None:
        super().close()
        on_close, self.on_close = self.on_close, None
        if on_close is not None:
            on_close()


class Admission:
    """The connections of one process that have not been admitted, of which there are ``places`` by kind."""

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
        """when each reason was logged last"""
        self._reserve: list[int] = []
        self._reserved = min(RESERVE, files.limit(RESERVE * RESERVE_SHARE) // RESERVE_SHARE)
        self.refill()

    def enter(self, guest: Guest, kind: str) -> bool:
        """Count ``guest`` until it is admitted or closed; False where it is to be closed at once."""
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
        if user is None:  # only where the kernel tells nobody's user the owner's connections are such
            return "others" if self.peers.answers else "owner"
        return "owner" if user == os.geteuid() else "others"

    def touch(self, descriptor: int, *, at_work: bool = False) -> None:
        """Note that a connection is used: others are evicted before it; it is not while it is ``at_work``."""
        for waiting in self._waiting.values():
            if (guest := waiting.pop(descriptor, None)) is not None:
                guest.at_work = at_work
                waiting[descriptor] = guest

    def admit(self, descriptor: int) -> None:
        """The connection has shaken hands: it counts as a client from now on."""
        for waiting in self._waiting.values():
            if (guest := waiting.pop(descriptor, None)) is not None:
                guest.on_close = self.refill

    def spare(self) -> bool:
        """Give a descriptor of the reserve free; whether one is left, to accept and close others with."""
        if self._reserve:
            os.close(self._reserve.pop())
        return len(self._reserve) > 0

    def out_of_descriptors(self) -> None:
        """A connection was closed because the process has no descriptor for it."""
        self.refill()
        self._refuse("the process may open no more files")

    def close(self) -> None:
        """Give the reserve free."""
        self.peers.close()
        while self._reserve:
            os.close(self._reserve.pop())

    def _evict(self, kind: str) -> bool:
        """Close the least recently used connection without a request at work; False if there is none."""
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
        """Fill the reserve as far as there are descriptors."""
        with contextlib.suppress(OSError):
            while len(self._reserve) < self._reserved:
                self._reserve.append(os.open(os.devnull, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)))

    def _refuse(self, why: str) -> None:
        """Count a closed connection; log each reason at most once in :data:`TELL_S`."""
        self._refused[why] += 1
        now = time.monotonic()
        if now - self._logged.get(why, -TELL_S) >= TELL_S:
            log.warning("%d connections were closed %s: %s", self._refused[why], self._lacking, why)
            self._logged[why], self._refused[why] = now, 0


class Listening(socket.socket):
    """A listening socket whose connections are counted by an :class:`Admission` from their first moment."""

    admission: Admission

    @classmethod
    def of(cls, listening: socket.socket, admission: Admission) -> Listening:
        """The same socket, in the place of ``listening``."""
        mine = cls(listening.family, listening.type, listening.proto, fileno=listening.detach())
        mine.admission = admission
        return mine

    def accept(self) -> tuple[socket.socket, Any]:
        """As :meth:`socket.socket.accept`. Raises BlockingIOError after a connection that was refused: the
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
        except OSError:  # nobody waits: a descriptor is asked for before that is looked at
            self.admission.refill()
            raise BlockingIOError(errno.EAGAIN, "nobody waits") from None
        if has_more and self.family == UNIX:
            return accepted, address
        accepted.close()
        self.admission.out_of_descriptors()
        raise BlockingIOError(errno.EAGAIN, "no descriptor is left")


def _is_connected(guest: Guest) -> bool:
    """Return whether the peer has not reset the connection; always True for a Unix socket."""
    if guest.family == UNIX:
        return True
    try:
        guest.getpeername()
    except OSError:
        return False
    return True
