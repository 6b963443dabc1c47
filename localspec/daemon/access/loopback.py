"""Listening sockets on loopback addresses."""

from __future__ import annotations

import errno
import socket

HOST = "127.0.0.1"
HOSTS = {HOST: socket.AF_INET, "::1": socket.AF_INET6}
"""in order of preference; the first that this machine has is used"""
LACKING = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENETUNREACH)
"""the errors of a machine, or a container, that has no such address"""


def listen(port: int) -> socket.socket:
    """Open a TCP socket that listens at ``port``, 0 for any free port. Raises :class:`OSError`.

    Its connections send without delay (TCP_NODELAY): asyncio sets that only for sockets made with the
    protocol's number, and a second small packet would wait 40 ms for the first one's acknowledgement.
    """
    *others, last = HOSTS
    for host in others:
        try:
            return _listen(host, port)
        except OSError as error:
            if error.errno not in LACKING:
                raise
    return _listen(last, port)


def address(listening: socket.socket) -> str:
    """The host and port of a socket in the form of URLs."""
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if listening.family == socket.AF_INET6 else f"{host}:{port}"


def _listen(host: str, port: int) -> socket.socket:
    listening = socket.create_server((host, port), family=HOSTS[host])
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
