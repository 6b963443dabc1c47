"""Opening handshakes, byte by byte."""

from __future__ import annotations

import json
import socket
from typing import Any

from tests.daemon.harness import DaemonProcess
from tests.waiting import DEADLINE_S

UPGRADE = {
    "Host": "127.0.0.1",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "localspec.v1",
}


def request(headers: dict[str, str | None], *more: tuple[str, str], line: str = "GET / HTTP/1.1") -> bytes:
    """A handshake: the usual headers with these changes (None: without), and ``more`` repeated ones."""
    fields = [(name, value) for name, value in {**UPGRADE, **headers}.items() if value is not None]
    lines = [line, *(f"{name}: {value}" for name, value in (*fields, *more))]
    return "\r\n".join((*lines, "", "")).encode("latin-1")


def answer(daemon: DaemonProcess, data: bytes) -> tuple[int, str]:
    """The HTTP status of the answer (0: closed without one) and the whole of it. An accepted handshake is
    answered with 101, and the connection closed from this side."""
    with socket.socket(socket.AF_UNIX) as wire:
        wire.settimeout(DEADLINE_S)
        wire.connect(daemon.socket)
        wire.sendall(data)
        received = b""
        try:
            while not (received.startswith(b"HTTP/1.1 101") and b"\r\n\r\n" in received):
                if not (part := wire.recv(65536)):
                    break
                received += part
        except ConnectionResetError:
            pass  # refused before all was read
    text = received.decode("latin-1")
    return (int(text.split(" ")[1]) if text else 0), text


def masked(opcode: int, payload: bytes) -> bytes:
    """A client's frame (its mask is zero, which is allowed)."""
    size = len(payload)
    if size < 126:
        length = bytes([0x80 | size])
    elif size < 65536:
        length = bytes([0x80 | 126]) + size.to_bytes(2, "big")
    else:
        length = bytes([0x80 | 127]) + size.to_bytes(8, "big")
    return bytes([0x80 | opcode]) + length + bytes(4) + payload


def text_frame(id: int, method: str, **params: Any) -> bytes:
    """A request as it lies on the wire."""
    message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    return masked(1, json.dumps(message).encode())
