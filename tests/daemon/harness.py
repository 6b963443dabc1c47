"""Real daemons for the tests, and a client that can send anything."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from websockets.asyncio.client import ClientConnection, unix_connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from localspec.client import Client, connect
from localspec.protocol.messages import Discovery
from tests.waiting import DEADLINE_S, soon

REAL_DAEMON = (sys.executable, "-m", "localspec.daemon")
ECHO_DAEMON = (sys.executable, str(Path(__file__).with_name("echo_daemon.py")))
INITIALIZE = {"protocol": 1, "client": {"name": "test", "version": "0"}}

Frame = dict[str, Any]


def write_config(home: Path, *, options: Frame | None = None, sections: str = "", **daemon: Any) -> None:
    """Settings of the table ``[daemon]``, of ``[options]``, and more."""
    (home / "config").mkdir(exist_ok=True)
    text = "".join(
        f"[{table}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
        for table, values in (("daemon", daemon), ("options", options or {}))
    )
    (home / "config" / "config.toml").write_text(text + sections)


class DaemonProcess:
    """A daemon of its own home, ready when the constructor returns."""

    def __init__(self, home: Path, *, command: Sequence[str] = ECHO_DAEMON, **config: Any) -> None:
        self.home = home
        write_config(home, **config)
        ready, theirs = os.pipe()
        with open(ready, "rb") as pipe, open(home / "log", "ab") as log:
            self.process = subprocess.Popen(
                (*command, "--ready-fd", str(theirs)),
                pass_fds=(theirs,),
                stdin=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, "LOCALSPEC_HOME": str(home)},
            )
            os.close(theirs)
            if pipe.read(1) != b"1":
                self.process.wait(DEADLINE_S)
                raise AssertionError(f"no daemon: {self.log()}")
        self.found = msgspec.json.decode(self.discovery_path.read_bytes(), type=Discovery)

    @property
    def discovery_path(self) -> Path:
        return self.home / "runtime" / "daemon.json"

    @property
    def socket(self) -> str:
        return self.found.socket

    def log(self) -> str:
        return (self.home / "log").read_text()

    def workers(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Signal the daemon and wait for its end; returns its exit code. One that stops by itself meanwhile
        may be hit at its very end, when nothing handles signals any more."""
        self.process.send_signal(number)
        code = self.process.wait(DEADLINE_S)
        has_stopped = code == -signal.SIGTERM and "server: stopped" in self.log()
        return 0 if has_stopped else code


async def client_of(home: Path) -> Client:
    """A client of the daemon that runs in a home."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALSPEC_HOME", str(home))
        return await connect(start=False, name="test")


class Raw:
    """A client without checks: it sends what a test gives it and keeps all messages that come."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.seen: list[Frame] = []
        self.unclaimed: dict[int | str | None, Frame] = {}

    async def say(self, text: str | bytes) -> None:
        await self.socket.send(text)

    async def ask(self, id: int | str, method: str, **params: Any) -> None:
        await self.say(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))

    async def notify(self, method: str, **params: Any) -> None:
        await self.say(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}))

    async def next(self) -> Frame:
        """The next frame of any kind."""
        frame: Frame = json.loads(await soon(self.socket.recv()))
        self.seen.append(frame)
        if "method" not in frame:
            assert frame["id"] is None or frame["id"] not in self.unclaimed, "a second response"
            self.unclaimed[frame["id"]] = frame
        return frame

    async def response(self, id: int | str | None) -> Frame:
        """The response to ``id``, which may have come already."""
        while id not in self.unclaimed:
            await self.next()
        return self.unclaimed.pop(id)

    async def notice(self, method: str) -> Frame:
        """The next notification of this method."""
        while (frame := await self.next()).get("method") != method:
            pass
        return frame

    async def call(self, id: int | str, method: str, **params: Any) -> Frame:
        await self.ask(id, method, **params)
        return await self.response(id)

    async def result(self, id: int | str, method: str, **params: Any) -> Any:
        """The result of a request that must have one."""
        answer = await self.call(id, method, **params)
        assert "result" in answer, answer
        return answer["result"]

    async def begin(self, id: int | str, method: str, **params: Any) -> None:
        """Send a request, and wait for the first text."""
        await self.ask(id, method, **params)
        await self.notice("stream/delta")

    async def cancel(self, id: int | str) -> None:
        await self.notify("$/cancelRequest", id=id)
        assert (await self.response(id))["result"]["finish_reason"] == "cancelled"

    async def close_code(self) -> int | None:
        """Read until the daemon closes the connection; returns its code."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                await soon(self.socket.recv())
        return self.socket.close_code


@asynccontextmanager
async def raw(daemon: DaemonProcess, *, initialize: bool = True) -> AsyncIterator[Raw]:
    """A connection over the Unix socket."""
    subprotocols = [Subprotocol("localspec.v1")]
    async with unix_connect(
        daemon.socket, subprotocols=subprotocols, compression=None, max_size=None, close_timeout=1
    ) as socket:
        client = Raw(socket)
        if initialize:
            await client.call("init", "initialize", **INITIALIZE)
            client.seen.clear()
        yield client


def texts(frames: list[Frame], id: int | str) -> str:
    """The text of a request's deltas, whose numbering is checked on the way."""
    deltas = [
        f["params"] for f in frames if f.get("method") == "stream/delta" and f["params"]["request"] == id
    ]
    assert [delta["seq"] for delta in deltas] == list(range(len(deltas)))
    for delta in deltas:
        assert sum(token["chars"] for token in delta["tokens"]) == len(delta["text"])
    return "".join(delta["text"] for delta in deltas)


def code(frame: Frame) -> str:
    """The stable code of an error of ours."""
    assert frame["error"]["code"] in (-32000, -32602), frame
    return str(frame["error"]["data"]["code"])


def gone(process: psutil.Process) -> bool:
    """Return True if the process has ended, also if its exit status was not read yet."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
