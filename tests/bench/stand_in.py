"""A stand-in for llama-server over HTTP, without a model: run as ``python stand_in.py MODE …arguments…``.

Its answer's text holds its arguments and the request. It imports little, to start at once.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

TOKENS = [5, 6, 7, 8]
HOSTILE = {"no json": b"<html>", "no tokens": b'{"content": "x", "timings": {}}'}


def received(connection: socket.socket) -> tuple[str, bytes]:
    """(path, body) of one request."""
    raw = b""
    while b"\r\n\r\n" not in raw:
        raw += connection.recv(65536)
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    length = next((int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length")), 0)
    while len(body) < length:
        body += connection.recv(65536)
    return lines[0].split()[1], body


def reply(mode: str, body: bytes, asked: int) -> tuple[int, bytes]:
    if mode == "refuses" and asked == 1:
        return 400, b"the prompt is too long"
    if mode in HOSTILE:
        return 200, HOSTILE[mode]
    told = {"argv": sys.argv[2:], "pid": os.getpid(), "body": json.loads(body), "environment": [*os.environ]}
    timings = {"prompt_ms": 500.0, "predicted_ms": 2000.0, "predicted_n": 5}
    if "--spec-type" in sys.argv:
        timings |= {"draft_n": 9, "draft_n_accepted": 4}
    return 200, json.dumps({"content": json.dumps(told), "tokens": TOKENS, "timings": timings}).encode()


def serve(mode: str, port: int) -> None:
    health = asked = 0
    with socket.create_server(("127.0.0.1", port)) as server:
        while True:
            connection, _ = server.accept()
            with connection:
                path, body = received(connection)
                if path == "/health":
                    health += 1
                    ready = mode != "never ready" and (mode != "slow" or health > 3)
                    status, content = (200 if ready else 503), b"{}"
                else:
                    asked += 1
                    if mode == "dies":
                        print("out of memory, they say", flush=True)
                        os._exit(3)
                    status, content = reply(mode, body, asked)
                head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n"
                connection.sendall(head.encode() + content)


if __name__ == "__main__":
    if sys.argv[1] == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    serve(sys.argv[1], int(sys.argv[sys.argv.index("--port") + 1]))
