"""Connections that a daemon must survive: the data of each, its end, and that it does end."""

from __future__ import annotations

import asyncio
import base64
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from localspec.protocol import jsonrpc
from tests.daemon import harness
from tests.daemon.handshake import UPGRADE, request
from tests.daemon.harness import DaemonProcess
from tests.mutation import JSON_PIECES, Mutator
from tests.protocol.fuzzing import example_messages
from tests.waiting import DEADLINE_S

HTTP_PIECES = (
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b":",
        b" ",
        b"\t",
        b"\0",
        b"\xff\xfe",
        b"HTTP/1.1",
        b"HTTP/9.9",
        b"%00",
        b"../" * 50,
    ),
    *(b"Host: example.org\r\n", b"Origin: null\r\n", b"Content-Length: 999\r\n", b"Expect: 100-continue\r\n"),
    *(b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n", b"Upgrade: h2c\r\n", b"X: " + b"y" * 9000),
    *(b"Sec-WebSocket-Extensions: permessage-deflate\r\n", b"Sec-WebSocket-Key: short\r\n", b" folded\r\n"),
)
NO_UTF8 = (b"\xff\xfe", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80")
CLOSE_CODES = (0, 999, 1000, 1001, 1004, 1006, 1015, 3000, 5000, 65535)
DRIPS = 6
END = b"\r\n\r\n"
INITIALIZE = jsonrpc.request(0, "initialize", harness.INITIALIZE).encode()
LAST = b'{"jsonrpc":"2.0","id":"last","method":"daemon/status"}'
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


class Script(NamedTuple):
    """The data that one connection sends, and its end.

    Once the daemon has answered ``opening``, if there is one, ``chunks`` are sent, and what comes is read up
    to ``until``. ``leave``: "half" (sends no more, and reads to the end), "stay" (reads until the daemon
    closes) or "abort" (gone at once).
    """

    kind: str
    tcp: bool
    chunks: list[bytes]
    leave: str = "half"
    opening: bytes = b""
    until: bytes = b""


def frame(
    opcode: int, payload: bytes, *, first: int = 0x80, masked: bool = True, size: int | None = None
) -> bytes:
    """A WebSocket frame: ``first`` has the bits beside the opcode, ``size`` is a length that may be a lie."""
    length = len(payload) if size is None else size
    bit = 0x80 if masked else 0
    if length < 126:
        head = bytes([bit | length])
    elif length < 65536:
        head = bytes([bit | 126]) + length.to_bytes(2, "big")
    else:
        head = bytes([bit | 127]) + length.to_bytes(8, "big")
    key = b"mask" if masked else b""
    body = bytes(byte ^ b"mask"[i % 4] for i, byte in enumerate(payload)) if masked else payload
    return bytes([first | opcode]) + head + key + body


class Attacker(Iterator[Script]):
    """Scripts without end; the same for the same ``seed``. A ``patient`` one waits for deadlines, too."""

    def __init__(self, token: str, seed: int, *, patient: bool) -> None:
        self.rng = random.Random(seed)
        self._patient = patient
        self._token = token
        self._handshakes = Mutator(self._examples(), HTTP_PIECES, self.rng.randrange(1 << 30))
        self._messages = Mutator(example_messages(), JSON_PIECES, self.rng.randrange(1 << 30))
        kinds: dict[Callable[[], Script], int] = {
            self._damaged_handshake: 40,
            self._wrong_headers: 12,
            self._huge_headers: 2,
            self._partial_handshake: 6,
            self._damaged_messages: 15,
            self._odd_frames: 20,
            self._flood: 3,
            self._rude_end: 4,
        }
        self._kinds, self._weights = list(kinds), list(kinds.values())

    def __next__(self) -> Script:
        (kind,) = self.rng.choices(self._kinds, self._weights)
        return kind()

    def _examples(self) -> list[bytes]:
        bearer = f"localspec.v1, localspec.bearer.{self._token}"
        return [
            request({"Authorization": f"Bearer {self._token}"}),
            request({"Sec-WebSocket-Protocol": bearer}),
            request({}, line="GET /healthz HTTP/1.1"),
            request({"Authorization": f"Bearer {self._token}"}, line="GET /metrics HTTP/1.1"),
        ]

    def _damaged_handshake(self) -> Script:
        data = next(self._handshakes)
        until = END if END in data else b""
        return Script("damaged handshake", self.rng.random() < 0.7, self._torn(data), until=until)

    def _wrong_headers(self) -> Script:
        values = (
            "",
            "null",
            "https://example.org",
            "127.0.0.1",
            "localhost:99999999",
            "\xff\xfe",
            "Bearer",
            "a,b;c",
        )
        headers = {
            name: self.rng.choice(values) for name in (*UPGRADE, "Origin", "Authorization") if self._rarely()
        }
        chunks = [request({"Authorization": f"Bearer {self._token}", **headers})]
        return Script("wrong headers", True, chunks, until=END)

    def _huge_headers(self) -> Script:
        name = self.rng.choice(("Cookie", "Host", "Origin", "Authorization", "Sec-WebSocket-Protocol"))
        size = self.rng.choice((8000, 9000, 200_000))
        many = [("X", "y")] * self.rng.choice((1, 100, 5000))
        return Script("huge headers", True, [request({name: "z" * size}, *many)], until=END)

    def _partial_handshake(self) -> Script:
        whole = self.rng.choice(self._examples())
        part = whole[: self.rng.randrange(len(whole) - 1)]
        leave = self.rng.choices(("half", "abort", "stay"), (6, 6, self._patient))[0]
        return Script(f"partial handshake, {leave}", self.rng.random() < 0.7, self._torn(part), leave)

    def _opened(self, kind: str, said: list[bytes], leave: str = "half", until: bytes = b"") -> Script:
        """Over the Unix socket; mostly, ``initialize`` comes first."""
        key = base64.b64encode(self.rng.randbytes(16)).decode()
        first = [frame(TEXT, INITIALIZE)] if self.rng.random() < 0.8 else []
        return Script(kind, False, [*first, *said], leave, request({"Sec-WebSocket-Key": key}), until)

    def _damaged_messages(self) -> Script:
        said = [frame(TEXT, self._message()) for _ in range(self.rng.randrange(1, 8))]
        return self._opened("damaged messages", [*said, frame(TEXT, LAST)], until=b'"last"')

    def _message(self) -> bytes:
        data = next(self._messages)
        # A shutdown that works is no attack.
        return data.replace(b"daemon/shutdown", b"daemon/shutdowns")

    def _odd_frames(self) -> Script:
        makers = (
            lambda: frame(self.rng.randrange(16), self.rng.randbytes(self.rng.randrange(200))),
            lambda: frame(TEXT, b"{}", first=self.rng.choice((0x90, 0xA0, 0xC0, 0xF0))),
            lambda: frame(TEXT, b"{}", masked=False),
            lambda: frame(TEXT, self.rng.choice(NO_UTF8)),
            lambda: frame(TEXT, b"{", first=0) + frame(PING, b"?") + frame(CONTINUATION, b"}"),
            lambda: frame(TEXT, b"{", first=0) * 2,
            lambda: frame(TEXT, b"", first=0) + frame(CONTINUATION, b"", first=0) * 500,
            lambda: frame(CONTINUATION, b"behind nothing"),
            lambda: frame(BINARY, self.rng.randbytes(50)),
            lambda: frame(self.rng.choice((CLOSE, PING, PONG)), bytes(self.rng.choice((126, 5000)))),
            lambda: frame(PING, b"", first=0),
            lambda: frame(TEXT, b"x", size=self.rng.choice((2**63, 2**64 - 1, 2**32, 70_000, 100))),
            lambda: frame(TEXT, b" " * 70_000),
            lambda: frame(CLOSE, self.rng.choice(CLOSE_CODES).to_bytes(2, "big")),
            lambda: frame(CLOSE, self.rng.choice((b"", b"\x03", b"\x03\xe8\xff\xfe", b"\x03\xe8" * 62))),
            lambda: self.rng.randbytes(self.rng.randrange(1, 400)),
        )  # fmt: skip
        said = [self.rng.choice(makers)() for _ in range(self.rng.randrange(1, 5))]
        return self._opened("odd frames", self._torn(b"".join(said)))

    def _flood(self) -> Script:
        ask = b'{"jsonrpc":"2.0","id":%d,"method":"%s","params":{"prompt":"flood 20 50"}}'
        one = self.rng.choice((
            [frame(PING, b"flood")] * 300,
            [frame(TEXT, ask % (i, b"generate")) for i in range(100)],
            [frame(TEXT, ask % (7, b"generate"))] * 100,
            [frame(TEXT, b'{"jsonrpc":"2.0","id":%d,"method":"daemon/status"}' % i) for i in range(100)],
            [frame(TEXT, b'{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}')] * 300,
        ))  # fmt: skip
        return self._opened("flood", [b"".join(one), frame(TEXT, LAST)], self._half_or_gone(), b'"last"')

    def _rude_end(self) -> Script:
        """Gone with requests under way."""
        ask = frame(TEXT, b'{"jsonrpc":"2.0","id":1,"method":"generate","params":{"prompt":"stall"}}')
        return self._opened("rude end", [ask], "abort")

    def _half_or_gone(self) -> str:
        return self.rng.choice(("half", "abort"))

    def _rarely(self) -> bool:
        return self.rng.random() < 0.2

    def _torn(self, data: bytes) -> list[bytes]:
        """In pieces that are sent one by one."""
        places = sorted(self.rng.randrange(len(data) + 1) for _ in range(self.rng.choice((0, 0, 1, DRIPS))))
        return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


class Tally:
    """Counts of attempts and of answers."""

    def __init__(self) -> None:
        self.tried = Counter[str]()
        self.answers = Counter[str]()

    def __str__(self) -> str:
        return f"{self.tried.total()} connections {dict(self.tried)}; endings {dict(self.answers)}"


async def play(daemon: DaemonProcess, script: Script, tally: Tally) -> None:
    """Be one connection; it must be closed by the daemon within the deadline, unless it goes by itself."""
    tally.tried[script.kind] += 1
    received = bytearray()
    try:
        async with asyncio.timeout(DEADLINE_S):
            with suppress(ConnectionError):
                await converse(daemon, script, received)
    except TimeoutError:
        raise AssertionError(f"not closed within {DEADLINE_S} s: {str(script)[:2000]}") from None
    if script.leave != "abort":
        tally.answers[ending(bytes(received))] += 1


async def converse(daemon: DaemonProcess, script: Script, received: bytearray) -> None:
    if script.tcp:
        reader, writer = await asyncio.open_connection("127.0.0.1", daemon.port)
    else:
        reader, writer = await asyncio.open_unix_connection(daemon.socket)
    try:
        if script.opening:
            writer.write(script.opening)
            received += await reader.read(65536)
        for chunk in script.chunks:
            writer.write(chunk)
            await asyncio.sleep(0)
        if script.leave == "abort":
            return
        while script.until and script.until not in received and (part := await reader.read(65536)):
            received += part
        if script.leave == "half":
            with suppress(OSError):  # the daemon may have left first
                writer.write_eof()
        while part := await reader.read(65536):
            received += part
    finally:
        writer.transport.abort()


def ending(received: bytes) -> str:
    """Return the kind of a connection's end: a close frame's code, an HTTP status, or ``closed``."""
    for place in range(max(0, len(received) - 127), len(received) - 3):
        if received[place : place + 2] == bytes([0x80 | CLOSE, len(received) - place - 2]):
            return f"close {int.from_bytes(received[place + 2 : place + 4], 'big')}"
    return received.split(b"\r\n")[0].decode("latin-1")[9:12] or "closed"


async def attack(daemon: DaemonProcess, scripts: Iterator[Script], *, at_once: int) -> Tally:
    """Play all ``scripts``, ``at_once`` at a time."""
    tally = Tally()

    async def one_after_the_other() -> None:
        for script in scripts:
            await play(daemon, script, tally)

    await asyncio.gather(*(one_after_the_other() for _ in range(at_once)))
    return tally
