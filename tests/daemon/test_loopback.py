"""The socket on which others are listened to."""

from __future__ import annotations

import socket

import pytest

from localspec.daemon.access.loopback import HOST, listen


def test_connections_send_at_once() -> None:
    with listen(0) as listening, socket.create_connection(listening.getsockname()) as client:
        accepted, (host, _) = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
            assert host == HOST == client.getpeername()[0]


def test_a_port_that_is_taken_is_refused() -> None:
    with listen(0) as listening, pytest.raises(OSError, match="in use"):
        listen(listening.getsockname()[1])
