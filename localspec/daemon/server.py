"""The daemon's life: listen, announce, admit clients, answer, stop."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import resource
import shlex
import signal
import socket
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
from filelock import FileLock, Timeout
from websockets.asyncio.server import Server as Listening
from websockets.asyncio.server import ServerConnection, unix_serve
from websockets.frames import CloseCode
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from localspec import home
from localspec._version import __version__
from localspec.config import Config, load_config
from localspec.daemon.access import CLOSE_S, Socket
from localspec.daemon.connection import Connection
from localspec.daemon.daemon import Daemon
from localspec.daemon.logs import OneLine, keep_small, redirect
from localspec.daemon.workers.pool import COMMAND, Program
from localspec.errors import DaemonUnavailable, ExitCode, LocalspecError, of_system
from localspec.protocol.messages import FULL, PROTOCOL, SUBPROTOCOL, Discovery
from localspec.wording import printable

log = logging.getLogger(__name__)

WANTED_FILES = 4096
OWN_FILES = 24
"""sockets, databases and logs of the daemon itself, and the pipes of a process that it starts"""
OPEN_S = 3.0
"""seconds that a handshake may take"""
HANDSHAKES = 32
"""connections that may be shaking hands while all places are taken"""
PATIENCE_S = 20.0
"""seconds to wait for the lock of a daemon that is starting or stopping"""
STEP_S = 0.1
CHECK_S = 2.0
"""seconds between looks whether clients can still find the daemon"""
DRAIN_S = 1.0
"""seconds for which answers go on when the daemon stops"""
DRAIN_STEP_S = 0.02
RESTART, RUN = "`localspec daemon restart`", "`localspec daemon run --http`"
END_S = 1.0
"""longest wait for the end of the requests that are cancelled after that"""
Serve = Callable[[Config, Daemon], AbstractAsyncContextManager[str]]
"""serves HTTP while entered and yields its address; raises :class:`DaemonUnavailable`"""


def raise_limit() -> None:
    """Raise the limit to :data:`WANTED_FILES` as far as the system allows; some systems begin with 256."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(WANTED_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def most_connections(most: int) -> int:
    """The number of concurrent connections that the limit leaves files for, from 1 to ``most``."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else max(1, min(most, soft - OWN_FILES))


async def listen_for_clients(daemon: Daemon, path: Path) -> Listening:
    """Listen on the Unix socket ``path``, for clients of this user."""
    limits = daemon.config.daemon
    most = most_connections(limits.max_connections)

    def admit(connection: ServerConnection, request: Request) -> Response | None:
        """The refusal of a client beyond the limit; None to upgrade the connection."""
        if len(daemon.connections) >= most:
            return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, f"{FULL}\n")
        return None

    async def handle(connection: ServerConnection) -> None:
        assert isinstance(connection, Socket)
        await Connection(connection, daemon).serve()

    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))
    path.chmod(0o600)
    make: Any = partial(Socket, made=set(), most=most + HANDSHAKES)
    return await unix_serve(
        handle,
        sock=listening,
        origins=[None],  # a browser sends one
        subprotocols=[Subprotocol(SUBPROTOCOL)],
        process_request=admit,
        compression=None,
        max_size=limits.max_frame,
        ping_interval=limits.ping_interval_s,
        ping_timeout=limits.ping_interval_s,
        open_timeout=OPEN_S,
        close_timeout=CLOSE_S,
        server_header=None,
        create_connection=make,
    )


def claim() -> FileLock | None:
    """Take the lock of the one daemon; returns None if another one is listening already. Waits for a daemon
    that is starting or stopping, and raises :class:`DaemonUnavailable` if that takes too long. A discovery
    file left behind by a killed daemon is removed."""
    lock, announced = FileLock(home.runtime_dir() / "daemon.lock"), home.discovery_path()
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            lock.acquire(timeout=STEP_S)
        except Timeout:
            if announced.exists() and home.socket_path().exists():
                return None
        else:
            announced.unlink(missing_ok=True)
            return lock
    raise DaemonUnavailable(
        f"another daemon holds the lock {lock.lock_file}, but has not listened for {PATIENCE_S:.0f} s",
        f"Find it with `fuser {shlex.quote(lock.lock_file)}`, then end it.",
    )


class Announcement:
    """The discovery file and the socket, by which clients find the daemon. Their directory may be deleted
    while the daemon runs, as systemd does at a logout, and another daemon begin in a new one at the same
    path: these files are that daemon's then."""

    def __init__(self) -> None:
        # Computed once: that creates the directory, which would come back after its deletion.
        self.path, self.socket = home.discovery_path(), home.socket_path()
        found = Discovery(os.getpid(), __version__, PROTOCOL, str(self.socket))
        self._text = msgspec.json.encode(found).decode() + "\n"

    def write(self) -> None:
        """Write the discovery file. Raises OSError, or an error of the full disk."""
        try:
            home.write_private(self.path, self._text)
        except OSError as error:
            what = f"clients cannot find the daemon, as {self.path} cannot be written"
            raise (of_system(error, what) or error) from None

    def is_there(self) -> bool:
        """True unless a file was deleted, or is another daemon's."""
        try:
            return self.socket.exists() and self.path.read_text(errors="replace") == self._text
        except OSError as error:  # too few descriptors, or a failing disk, is no loss
            return not isinstance(error, (FileNotFoundError, NotADirectoryError))

    def withdraw(self) -> None:
        """Delete the files, unless they are another daemon's."""
        with suppress(OSError):
            if self.path.read_text(errors="replace") == self._text:
                self.path.unlink()
                self.socket.unlink()


class DaemonServer:
    """One daemon, from its lock to its last connection."""

    def __init__(
        self, config: Config, worker: Program = COMMAND, *, serve_http: Serve, http: bool = False
    ) -> None:
        self._config, self._serve_http = config, serve_http
        self._daemon = Daemon(config, worker)
        self._daemon.http_flag = self._must_open_http = http
        self._listening: Listening | None = None
        self._announcement = Announcement()

    async def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Serve until SIGTERM, SIGINT or ``daemon/shutdown``; ``on_ready`` is called once it listens. Raises
        :class:`DaemonUnavailable` if the HTTP server was asked for and cannot listen at the start."""
        daemon = self._daemon
        await daemon.history.open()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(daemon.history.close)
            # Before clients can find the daemon and stop it.
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, daemon.stopping.set)
            mark = home.left_open_path()  # of a daemon started with --http that this one replaces
            daemon.http_flag |= mark.exists()
            mark.unlink(missing_ok=True)
            if daemon.http_flag or self._config.http.enabled:
                # It ends last, so that its streams end like all others.
                await self._open_http(stack)
            stack.push_async_callback(self._stop)
            await self._listen()
            on_ready()
            log.info("localspec %s listens on %s", __version__, daemon.socket)
            await self._wait_for_end()

    async def _wait_for_end(self) -> None:
        """Wait for a requested stop, or until clients cannot find this daemon any more: it would keep its
        successor from the history of chats."""
        while self._announcement.is_there():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._daemon.stopping.wait(), CHECK_S)
                return
        what = f"{self._announcement.path} or the daemon's socket was deleted, so that no client finds it"
        raise DaemonUnavailable(what, "The next command starts another daemon.")

    async def _open_http(self, stack: AsyncExitStack) -> None:
        daemon = self._daemon
        try:
            daemon.http = await stack.enter_async_context(self._serve_http(self._config, daemon))
            log.info("the HTTP server listens at %s", daemon.http)
        except DaemonUnavailable as error:
            if self._must_open_http:
                raise DaemonUnavailable(error.message, error.remedy.replace(RESTART, RUN)) from None
            daemon.http_problem = error
            log.error("HTTP server: %s. %s", error.message, error.remedy)

    async def _listen(self) -> None:
        place = self._announcement.socket
        self._listening, self._daemon.socket = await listen_for_clients(self._daemon, place), str(place)
        self._announcement.write()

    async def _stop(self) -> None:
        """Withdraw the announcement, let answers end or cancel them, end the workers, close every socket. New
        requests are refused from the start; all text generated is stored and sent."""
        daemon = self._daemon
        daemon.stopping.set()
        # Before any client can see it end: a client that starts the service then gets a new daemon.
        notify_supervisor("STOPPING=1")
        self._announcement.withdraw()
        if self._listening is not None:
            self._listening.close(close_connections=False)
        until = time.monotonic() + DRAIN_S
        while daemon.busy and time.monotonic() < until:
            await asyncio.sleep(DRAIN_STEP_S)
        ending = [connection.end_requests() for connection in daemon.connections]
        ended = asyncio.gather(*ending, daemon.streams.close())
        await asyncio.wait([ended], timeout=END_S)
        # Requests that did not end fail with the end of their worker.
        await daemon.pool.close()
        await asyncio.wait([ended], timeout=END_S)
        reason = "the daemon is stopping"
        await asyncio.gather(*(c.close(CloseCode.GOING_AWAY, reason) for c in tuple(daemon.connections)))
        if self._listening is not None:
            await asyncio.wait([asyncio.create_task(self._listening.wait_closed())], timeout=END_S)
        log.info("stopped")


def notify_supervisor(state: str) -> None:
    """Send ``READY=1`` or ``STOPPING=1`` to systemd, if that started the daemon (``sd_notify``)."""
    if not (address := os.environ.get("NOTIFY_SOCKET")):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
        notices.connect("\0" + address[1:] if address.startswith("@") else address)
        notices.send(state.encode())


def main(serve_http: Serve, arguments: list[str] | None = None, worker: Program = COMMAND) -> int:
    """Run a daemon, which mounts the HTTP server ``serve_http``; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m localspec.daemon", description="Run the daemon.")
    parser.add_argument(
        "--ready-fd", type=int, help="write one byte to this descriptor once a daemon listens"
    )
    parser.add_argument("--http", action="store_true", help="start the HTTP server, too")
    parser.add_argument("--log", action="store_true", help="log to the home's daemon.log instead of stderr")
    given = parser.parse_args(arguments)
    os.umask(0o077)
    raise_limit()
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # Its errors are about refused handshakes, which are the clients' errors.
    logging.getLogger("websockets").setLevel(logging.CRITICAL)
    # Its warnings are a line for every message to a client that is gone: thousands.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    try:
        if given.log:
            redirect()
        server = partial(DaemonServer, worker=worker, serve_http=serve_http, http=given.http)
        by_hand = not (given.log or given.ready_fd is not None or os.environ.get("NOTIFY_SOCKET"))
        return _run(given.ready_fd, server, bounded=given.log, must_be_mine=by_hand or given.http)
    except LocalspecError as error:
        if given.log:
            log.error("%s. %s", error.message, error.remedy)
        else:
            sys.stderr.write(f"localspec: {printable(error.message)}. {printable(error.remedy)}\n")
        return error.exit_code
    except (OSError, sqlite3.Error) as error:
        # For example a file that is a directory, or a full disk: one line, for the log and the caller.
        log.error("the daemon's files cannot be used: %s. Run `localspec daemon run` to see more.", error)
        return ExitCode.ERROR


def _run(
    ready_fd: int | None, server: Callable[[Config], DaemonServer], *, bounded: bool, must_be_mine: bool
) -> int:
    config = load_config()
    lock = claim()
    if lock is None and must_be_mine:
        raise DaemonUnavailable("a daemon is already running", "Run `localspec daemon stop` first.")
    if lock is None:
        log.info("a daemon is already running")
        _report_ready(ready_fd)
        return ExitCode.OK
    try:
        asyncio.run(_serve(server(config), ready_fd, bounded=bounded))
    finally:
        lock.release()
    return ExitCode.OK


async def _serve(server: DaemonServer, ready_fd: int | None, *, bounded: bool) -> None:
    _keeping = asyncio.create_task(keep_small()) if bounded else None  # ends with the event loop
    await server.run(on_ready=lambda: _report_ready(ready_fd))


def _report_ready(ready_fd: int | None) -> None:
    """Report to the client or the supervisor that started this process that a daemon listens."""
    notify_supervisor("READY=1")
    if ready_fd is not None:
        with suppress(BrokenPipeError):  # the client is gone; others may come
            os.write(ready_fd, b"1")
        os.close(ready_fd)
