"""The user at the other end of a TCP connection on this machine, as Linux knows it (sock_diag(7))."""

from __future__ import annotations

import contextlib
import socket
import struct

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
"""behind the state (4 bytes), the socket's id (48) and three counters (12)"""
ANSWER_BYTES = 4096


def user_of(accepted: socket.socket) -> int | None:
    """The user id that owns the other end of ``accepted``; None where nobody knows, as on other systems."""
    if not hasattr(socket, "AF_NETLINK") or accepted.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    with contextlib.suppress(OSError, struct.error):
        theirs, ours = accepted.getpeername(), accepted.getsockname()
        asked = (
            REQUEST.pack(accepted.family, socket.IPPROTO_TCP, 0, ALL_STATES)
            + PORTS.pack(theirs[1], ours[1])
            + _packed(accepted.family, theirs[0])
            + _packed(accepted.family, ours[0])
            + NO_COOKIE
        )
        header = HEADER.pack(HEADER.size + len(asked), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 0, 0)
        kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK
        with socket.socket(socket.AF_NETLINK, kind, NETLINK_SOCK_DIAG) as kernel:
            kernel.send(header + asked)
            answer = kernel.recv(ANSWER_BYTES)
        if HEADER.unpack_from(answer)[1] == SOCK_DIAG_BY_FAMILY:
            return int(UID.unpack_from(answer, UID_AT)[0])
    return None


def _packed(family: int, host: str) -> bytes:
    return socket.inet_pton(family, host).ljust(ADDRESS_BYTES, b"\0")
