"""Another program at the port of a killed daemon: no client sends it the token or a request."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import httpx2
import psutil
import pytest

from localspec import home as homes
from localspec.client import connect, discovery
from localspec.errors import LocalspecError
from localspec.protocol.handshake import CHALLENGE
from localspec.protocol.messages import Discovery
from tests.daemon.harness import ECHO_DAEMON, INITIALIZE, write_config
from tests.editors.found import ROOT
from tests.vscode.build import PLUGIN, npm
from tests.waiting import DEADLINE_S, run, until_sync

pytestmark = pytest.mark.slow

PROMPT = "the-secret-question-4711"
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
NODE = """
const { Connection } = require(process.argv[1]);
const watcher = { connecting() {}, connected() {}, disconnected() {}, progress() {} };
const connection = new Connection(() => process.argv[2], "0", watcher);
connection.rpc(true)
  .then((rpc) => rpc.request("generate", { prompt: process.argv[3] }).result)
  .then(() => process.exit(3), () => process.exit(0));
"""


class Recorder:
    """Takes every connection to ``port``, keeps the data that comes, and answers by ``mode``."""

    def __init__(self, port: int, mode: str) -> None:
        self.received: list[bytearray] = []
        self._mode = mode
        self._listening = socket.create_server(("127.0.0.1", port))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def everything(self) -> bytes:
        return b"\0".join(map(bytes, self.received))

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(DEADLINE_S)

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.received.append(bytearray())
            threading.Thread(target=self._serve, args=(connection, self.received[-1]), daemon=True).start()

    def _serve(self, connection: socket.socket, received: bytearray) -> None:
        connection.settimeout(DEADLINE_S)
        answered = False
        with connection, contextlib.suppress(OSError):
            while part := connection.recv(65536):
                received += part
                if not answered and b"\r\n\r\n" in received:
                    answered = True
                    if self._mode == "closes":
                        return
                    connection.sendall(self._answer(bytes(received)))

    def _answer(self, request: bytes) -> bytes:
        key = re.search(rb"(?i)sec-websocket-key: *(\S+)", request)
        if self._mode == "silent":
            return b""
        if self._mode == "refuses" or key is None:
            return b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        accept = base64.b64encode(hashlib.sha1(key[1] + GUID).digest())
        challenge = {"nonce": "0" * 64, "port": self._listening.getsockname()[1], "proof": "0" * 64}
        said = json.dumps({"jsonrpc": "2.0", "method": CHALLENGE, "params": challenge}).encode()
        return (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Protocol: localspec.v1\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n"
            b"\x81" + bytes([126]) + len(said).to_bytes(2, "big") + said
        )


class Scene(NamedTuple):
    """A home with the announcement of a daemon that was killed, and its token."""

    home: Path
    stale: bytes
    token: str
    port: int

    def put_back(self) -> None:
        """End the daemon that a client may have started, and announce the killed one again."""
        found = discovery.find()
        if found is not None and found.pid != json.loads(self.stale)["pid"]:
            process = psutil.Process(found.pid)
            process.terminate()
            process.wait(DEADLINE_S)
        homes.discovery_path().write_bytes(self.stale)

    def command(self, *words: str, said: str = "") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            (sys.executable, "-P", "-m", "localspec", *words),
            input=said.encode(),
            capture_output=True,
            timeout=4 * DEADLINE_S,
            check=False,
        )


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    place = tmp_path / ("long" * 25)
    place.mkdir()
    write_config(place, options={"max_tokens": 4}, sections="[http]\nenabled = false\nport = 0\n")
    monkeypatch.setenv("LOCALSPEC_HOME", str(place))

    async def killed() -> Discovery:
        async with await connect(command=ECHO_DAEMON) as client:
            pid = (await client.status()).pid
        found = discovery.find()
        os.kill(pid, signal.SIGKILL)
        assert found is not None and found.socket is None and found.url is not None
        return found

    found = run(killed())
    until_sync(lambda: not psutil.pid_exists(found.pid), "it is gone")
    port = int(str(found.url).rpartition(":")[2])
    scene = Scene(place, homes.discovery_path().read_bytes(), homes.token_path().read_text(), port)
    yield scene
    scene.put_back()


def runs(scene: Scene) -> None:
    said = scene.command("run", PROMPT)
    assert said.returncode == 0 and said.stdout, said.stderr


def completes(scene: Scene) -> None:
    said = scene.command("complete", said=f"def {PROMPT}")
    assert said.returncode == 0, said.stderr


def bridges(scene: Scene) -> None:
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}),
        json.dumps({"jsonrpc": "2.0", "id": 2, "method": "generate", "params": {"prompt": PROMPT}}),
    ]
    with subprocess.Popen(
        (sys.executable, "-P", "-m", "localspec", "bridge"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write("".join(f"{line}\n" for line in lines).encode())
        process.stdin.flush()
        first = process.stdout.readline()
        process.kill()
        assert json.loads(first)["result"]["protocol"] == 1, process.stderr.read()


def asks_by_http(scene: Scene) -> None:
    with subprocess.Popen(
        (sys.executable, "-P", "-m", "localspec.http"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as door:
        assert door.stdin is not None and door.stdout is not None
        url = door.stdout.readline().decode().strip()
        headers = {"authorization": f"Bearer {homes.http_token_path().read_text()}"}
        with httpx2.Client(timeout=DEADLINE_S, trust_env=False, headers=headers) as client:
            answer = client.post(f"{url}/v1/completions", json={"prompt": PROMPT})
        door.stdin.close()
        assert answer.status_code >= 500, answer.text


def asks_by_the_library(scene: Scene) -> None:
    async def ask(**how: object) -> None:
        async with await connect(start=False, **how) as client:  # type: ignore[arg-type]
            await client.generate(PROMPT).result()

    for how in ({}, {"url": f"ws://127.0.0.1:{scene.port}"}):
        with pytest.raises(LocalspecError):
            run(ask(**how))


def asks_from_vs_code(scene: Scene) -> None:
    npm("run", "build")
    command = scene.home / "localspec"
    command.write_text(f"#!/bin/sh\ncat {homes.discovery_path()}\n")
    command.chmod(0o700)
    module = str(PLUGIN / "out" / "src" / "connection.js")
    words = ("node", "--experimental-websocket", "-e", NODE, module, str(command), PROMPT)
    done = subprocess.run(words, cwd=ROOT, capture_output=True, timeout=4 * DEADLINE_S)
    assert done.returncode == 0, done.stderr


CLIENTS: tuple[Callable[[Scene], None], ...] = (
    *(runs, completes, bridges, asks_by_http, asks_by_the_library, asks_from_vs_code),
)


@pytest.mark.parametrize("mode", ["upgrades", "refuses", "silent", "closes"])
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_it_records_neither_the_token_nor_the_question(
    scene: Scene, client: Callable[[Scene], None], mode: str
) -> None:
    recorder = Recorder(scene.port, mode)
    try:
        client(scene)
    finally:
        recorder.close()
    recorded = recorder.everything()
    print(f"{client.__name__}, {mode}: {len(recorder.received)} connections, {len(recorded)} bytes recorded")
    assert b"localspec.v1" in recorded, "it was never asked"
    assert scene.token.encode() not in recorded
    assert PROMPT.encode() not in recorded and b"initialize" not in recorded
