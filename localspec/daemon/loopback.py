"""Listening on this machine alone."""

from __future__ import annotations

import socket

HOST = "127.0.0.1"


def listen(port: int) -> socket.socket:
    """A TCP socket that listens at ``port``, 0 for any that is free. Raises :class:`OSError`.

    Its connections send at once: asyncio sees to that only for sockets that were made with their protocol's
    name, and a second small packet would wait 40 ms for the first one's acknowledgement.
    """
    listening = socket.create_server((HOST, port))
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
