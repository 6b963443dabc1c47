"""Listening on this machine alone."""

from __future__ import annotations

import errno
import socket

HOST = "127.0.0.1"
HOSTS = {HOST: socket.AF_INET, "::1": socket.AF_INET6}
"""the first of these that this machine has"""
LACKING = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENETUNREACH)
"""the errors of a machine, or a container, that has no such address"""


def listen(port: int) -> socket.socket:
    """A TCP socket that listens at ``port``, 0 for any that is free. Raises :class:`OSError`.

    Its connections send at once: asyncio sees to that only for sockets that were made with their protocol's
    name, and a second small packet would wait 40 ms for the first one's acknowledgement.
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
    """The host and port of a socket as URLs have them."""
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if listening.family == socket.AF_INET6 else f"{host}:{port}"


def _listen(host: str, port: int) -> socket.socket:
    listening = socket.create_server((host, port), family=HOSTS[host])
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
