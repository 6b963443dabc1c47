"""A real daemon with its HTTP server, and ways to it."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from localspec import home as homes
from localspec.client import Client
from tests.client.conftest import own_home
from tests.daemon.harness import ECHO_DAEMON, REAL_DAEMON, DaemonProcess, client_of
from tests.waiting import DEADLINE_S, run, until_sync

SECTION = "[http]\nenabled = true\nport = 0\n"


class HttpServer(NamedTuple):
    daemon: DaemonProcess
    url: str
    token: str

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        """Send a request with the token, unless the headers replace it; return the response."""
        shown = {"authorization": f"Bearer {self.token}", **headers}
        content = None if body is None else body if isinstance(body, bytes) else json.dumps(body)
        with httpx2.Client(timeout=DEADLINE_S, trust_env=False) as client:
            return client.request(method, self.url + path, content=content, headers=shown)

    def post(self, path: str, body: Any, **headers: str) -> Any:
        """Return the JSON answer to a body, which must be accepted."""
        answer = self.ask("POST", path, body, **headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def events(self, path: str, body: Any) -> list[Any]:
        lines = self.ask("POST", path, body | {"stream": True}).text.split("\n")
        values = [line.removeprefix("data: ") for line in lines if line]
        return [json.loads(value) for value in values if value != "[DONE]"]

    def running(self) -> int:
        return sum(model.running for model in run(_status(self.daemon)).models)

    def loaded(self) -> list[str]:
        return [model.model for model in run(_status(self.daemon)).models]

    def until_idle(self) -> None:
        until_sync(lambda: self.running() == 0, "nothing is at work any more")

    def until_connected(self, count: int) -> None:
        """Wait until the HTTP server has so many connections to the daemon, without this check's own."""
        what = f"{count} requests are connected"
        until_sync(lambda: run(_status(self.daemon)).connections == count + 1, what)

    def until_busy(self) -> None:
        until_sync(lambda: self.running() > 0, "something is at work")

    @contextlib.contextmanager
    def sent(self, path: str, body: Any, *, shown: bool = True) -> Iterator[socket.socket]:
        """Yield a connection with this request sent, with the token if ``shown``, and nothing read yet."""
        content = json.dumps(body).encode()
        token = f"Authorization: Bearer {self.token}\r\n" if shown else ""
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{token}Content-Length: {len(content)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.port), DEADLINE_S) as connection:
            connection.sendall(head.encode() + content)
            yield connection


async def _status(daemon: DaemonProcess) -> Any:
    async with await wire(daemon) as client:
        return await client.status()


async def wire(daemon: DaemonProcess) -> Client:
    return await client_of(daemon.home)


@contextlib.contextmanager
def opened(*, real: bool = False, section: str = SECTION, **config: Any) -> Iterator[HttpServer]:
    """Run a daemon with a home and an HTTP server of its own; it must end well."""
    with own_home() as path:
        command = REAL_DAEMON if real else ECHO_DAEMON
        daemon = DaemonProcess(path, command=command, sections=section, **config)
        try:
            yield server_of(daemon, path)
        except BaseException:
            daemon.stop()  # the failure is reported by pytest; this leaves nothing behind
            raise
        assert daemon.stop() == 0, daemon.log()


def server_of(daemon: DaemonProcess, path: Path) -> HttpServer:
    found: list[str] = []

    def is_open() -> bool:
        if (url := run(_status(daemon)).http) is not None:
            found.append(url)
        return bool(found)

    until_sync(is_open, "it is open")
    return HttpServer(daemon, found[-1], homes.http_token_path().read_text().strip())
