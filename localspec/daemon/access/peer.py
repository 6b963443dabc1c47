"""The user at the other end of a TCP connection on this machine, and the bytes it has read, as reported by
Linux (sock_diag(7), tcp(7))."""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
from asyncio.trsock import TransportSocket

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST = 1
ALL_STATES = 0xFFFFFFFF
HEADER = struct.Struct("=LHHLL")
REQUEST = struct.Struct("=BBBxL")
PORTS = struct.Struct("!HH")
ADDRESS_BYTES = 16
NO_COOKIE = struct.pack("=LLL", 0, 0xFFFFFFFF, 0xFFFFFFFF)
"""of any interface"""
UID = struct.Struct("=L")
UID_AT = HEADER.size + 64
"""after the state (4 bytes), the socket's id (48) and three counters (12)"""
UNREAD = struct.Struct("=L")
UNREAD_AT = HEADER.size + 56
"""the second of the counters"""
ACKNOWLEDGED = struct.Struct("=Q")
ACKNOWLEDGED_AT = 120
"""``tcpi_bytes_acked`` of Linux's ``struct tcp_info``"""
ANSWER_BYTES = 4096

Connected = socket.socket | TransportSocket


class Peers:
    """Queries of the kernel over one socket, kept open so that they work with no descriptor left."""

    def __init__(self) -> None:
        self._kernel: socket.socket | None = None
        self._queries = 0
        self.answers = False
        """True once the kernel has answered a query; in a sandbox it may never do so"""
        if hasattr(socket, "AF_NETLINK"):
            with contextlib.suppress(OSError):
                self._opened()

    def user_of(self, accepted: socket.socket) -> int | None:
        """The user id that owns the other end of ``accepted``; None if the kernel does not report it, as on
        other systems, or for a closed connection."""
        answer = self._found(accepted)
        if answer is None:
            return None
        self.answers = True
        return int(UID.unpack_from(answer, UID_AT)[0])

    def read_by(self, accepted: Connected) -> int | None:
        """The bytes that the program at the other end of ``accepted`` has read, up to a constant.

        The bytes that have arrived there if the kernel does not report its receive queue; None if it reports
        nothing, as on other systems.
        """
        if sys.platform != "linux":
            return None
        with contextlib.suppress(OSError, struct.error):
            size = ACKNOWLEDGED_AT + ACKNOWLEDGED.size
            info = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
            answer = self._found(accepted)
            unread = 0 if answer is None else int(UNREAD.unpack_from(answer, UNREAD_AT)[0])
            return int(ACKNOWLEDGED.unpack_from(info, ACKNOWLEDGED_AT)[0]) - unread
        return None

    def _found(self, accepted: Connected) -> bytes | None:
        """The kernel's answer on the other end of a TCP connection; None as for :meth:`user_of`."""
        if not hasattr(socket, "AF_NETLINK") or accepted.family not in (socket.AF_INET, socket.AF_INET6):
            return None
        with contextlib.suppress(OSError, struct.error):
            remote, local = accepted.getpeername(), accepted.getsockname()
            query = (
                REQUEST.pack(accepted.family, socket.IPPROTO_TCP, 0, ALL_STATES)
                + PORTS.pack(remote[1], local[1])
                + _packed(accepted.family, remote[0])
                + _packed(accepted.family, local[0])
                + NO_COOKIE
            )
            return self._answer(query)
        return None

    def close(self) -> None:
        """Close the socket; the next query opens another one."""
        kernel, self._kernel = self._kernel, None
        if kernel is not None:
            kernel.close()

    def _answer(self, query: bytes) -> bytes | None:
        """The answer to ``query``; unread answers to earlier queries are skipped."""
        self._queries = (self._queries + 1) % (1 << 32)
        kernel = self._opened()
        try:
            length = HEADER.size + len(query)
            header = HEADER.pack(length, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, self._queries, 0)
            kernel.send(header + query)
            while True:
                answer = kernel.recv(ANSWER_BYTES)
                _, kind, _, number, _ = HEADER.unpack_from(answer)
                if number == self._queries:
                    return answer if kind == SOCK_DIAG_BY_FAMILY else None
        except (OSError, struct.error):
            self.close()
            raise

    def _opened(self) -> socket.socket:
        if self._kernel is None:
            kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK
            self._kernel = socket.socket(socket.AF_NETLINK, kind, NETLINK_SOCK_DIAG)
        return self._kernel


def _packed(family: int, host: str) -> bytes:
    return socket.inet_pton(family, host).ljust(ADDRESS_BYTES, b"\0")
