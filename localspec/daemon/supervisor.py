"""Notifications to systemd if it started the daemon (the protocol of ``sd_notify``)."""

from __future__ import annotations

import contextlib
import os
import socket


def is_there() -> bool:
    """Return True if a supervisor started this process."""
    return bool(os.environ.get("NOTIFY_SOCKET"))


def notify(state: str) -> None:
    """Send ``READY=1`` or ``STOPPING=1``; does nothing without a supervisor."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    abstract = address.startswith("@")
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
        notices.connect("\0" + address[1:] if abstract else address)
        notices.send(state.encode())
