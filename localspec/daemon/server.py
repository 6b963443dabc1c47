"""The daemon's life: listen, announce, answer, stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import Any

from websockets.frames import CloseCode

from localspec import home
from localspec._version import __version__
from localspec.config import Config
from localspec.daemon.announcement import Announcement
from localspec.daemon.connection import Connection
from localspec.daemon.daemon import Daemon
from localspec.daemon.listeners import Listeners
from localspec.daemon.relay.outbox import Socket
from localspec.daemon.workers.pool import COMMAND, Program
from localspec.errors import DaemonUnavailable
from localspec.protocol.messages import PROTOCOL, Discovery

log = logging.getLogger(__name__)

DRAIN_S = 1.0
"""seconds for which answers go on when the daemon stops"""
DRAIN_STEP_S = 0.02
RESTART, RUN = "`localspec daemon restart`", "`localspec daemon run --http`"
END_S = 1.0
"""longest wait for the end of the requests that are cancelled after that"""

Serve = Callable[[Config, Callable[[Socket], Coroutine[Any, Any, None]]], AbstractAsyncContextManager[str]]
"""serves HTTP while entered and yields its address; raises :class:`DaemonUnavailable`"""


class Server:
    """One daemon, from its first listening socket to its last."""

    def __init__(
        self, config: Config, worker: Program = COMMAND, *, serve_http: Serve, http: bool = False
    ) -> None:
        self._config = config
        self._serve_http = serve_http
        self._daemon = Daemon(config, worker)
        self._daemon.http_flag = self._must_open_http = http
        self._listeners = Listeners(self._daemon)
        self._announcement: Announcement | None = None

    async def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Serve until SIGTERM, SIGINT or ``daemon/shutdown``; ``on_ready`` is called once it listens.

        Raises :class:`DaemonUnavailable` if the HTTP server was asked for and cannot listen at the start.
        """
        daemon = self._daemon
        await daemon.history.open()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(daemon.history.close)
            # Before clients can find the daemon and stop it.
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, daemon.stopping.set)
            daemon.http_flag |= was_left_open()
            if daemon.http_flag or self._config.http.enabled:
                # It ends last, so that its streams end like all others.
                await self._open_http(stack)
            stack.push_async_callback(self._stop)
            await self._listen()
            on_ready()
            log.info("localspec %s listens on %s, TCP: %s", __version__, daemon.socket, daemon.url or "off")
            await self._until_stopped()

    async def _open_http(self, stack: AsyncExitStack) -> None:
        daemon = self._daemon
        try:
            daemon.http = await stack.enter_async_context(
                self._serve_http(self._config, lambda pipe: Connection(pipe, daemon).serve())
            )
            log.info("the HTTP server listens at %s", daemon.http)
        except DaemonUnavailable as error:
            if self._must_open_http:
                raise DaemonUnavailable(error.message, error.remedy.replace(RESTART, RUN)) from None
            daemon.http_problem = error
            log.error("HTTP server: %s. %s", error.message, error.remedy)

    async def _until_stopped(self) -> None:
        """Wait for a requested stop, or for the removal of the home."""
        assert self._announcement is not None
        keeping = asyncio.create_task(self._announcement.keep())
        stopping = asyncio.create_task(self._daemon.stopping.wait())
        await asyncio.wait([keeping, stopping], return_when=asyncio.FIRST_COMPLETED)
        keeping.cancel()
        stopping.cancel()

    async def _listen(self) -> None:
        daemon, listeners = self._daemon, self._listeners
        daemon.socket = await listeners.listen_unix()
        daemon.url = await listeners.listen_tcp()
        token_file = str(home.token_path())
        found = Discovery(os.getpid(), __version__, PROTOCOL, daemon.socket, daemon.url, token_file)
        self._announcement = Announcement(found, home.discovery_path(), (home.data_dir(),))
        self._announcement.make()

    # Stopping.

    async def _stop(self) -> None:
        """Withdraw the announcement, let answers end or cancel them, end the workers, close every socket.

        New requests are refused from the start; all text generated is stored and sent.
        """
        daemon = self._daemon
        daemon.stopping.set()
        # Before any client can see it end: a client that starts the service then gets a new daemon.
        notify_supervisor("STOPPING=1")
        if self._announcement is not None:
            self._announcement.withdraw()
        self._listeners.close()
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
        await self._listeners.closed(END_S)
        log.info("stopped")


def was_left_open() -> bool:
    """True if this daemon replaces one started with ``--http``; the mark of that is removed."""
    mark = home.left_open_path()
    is_marked = mark.exists()
    mark.unlink(missing_ok=True)
    return is_marked


def notify_supervisor(state: str) -> None:
    """Send ``READY=1`` or ``STOPPING=1`` to systemd, if that started the daemon (``sd_notify``)."""
    if not (address := os.environ.get("NOTIFY_SOCKET")):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
        notices.connect("\0" + address[1:] if address.startswith("@") else address)
        notices.send(state.encode())
