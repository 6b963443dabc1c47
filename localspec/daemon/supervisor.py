"""What the daemon tells systemd where that started it (the protocol of ``sd_notify``)."""

from __future__ import annotations

import contextlib
import os
import socket


def tell(state: str) -> None:
    """Say ``READY=1`` or ``STOPPING=1``; nothing where nobody waits for it."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    abstract = address.startswith("@")
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
        notices.connect("\0" + address[1:] if abstract else address)
        notices.send(state.encode())
