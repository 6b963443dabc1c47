"""A client's connection: its messages in, and frames out."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from localspec._version import __version__
from localspec.daemon.access import CLOSE_S, Socket
from localspec.daemon.daemon import Daemon
from localspec.daemon.relay import Outbox, WireExchange
from localspec.daemon.requests import Requests
from localspec.errors import LocalspecError, NotInitialized, VersionSkew
from localspec.protocol import jsonrpc, messages
from localspec.protocol.jsonrpc import Call, Id, ProtocolFault

log = logging.getLogger(__name__)


class Connection(Requests):
    """Reads requests and runs them. Its end cancels them; the streams of chats go on for a while."""

    def __init__(self, socket: Socket, daemon: Daemon) -> None:
        limits = daemon.config.daemon
        self.outbox = Outbox(socket, limits.send_buffer, limits.slow_client_s, self._drop)
        super().__init__(daemon, self.outbox)
        self._socket = socket
        self._initialized = False

    async def serve(self) -> None:
        """Answer until the client is gone and its requests have ended."""
        self.join()
        self.daemon.clients.add(self.outbox)
        try:
            await self._receive_all()
        except ConnectionClosed:
            pass  # the client has left, or the connection was lost
        except Exception:  # a defect of localspec, which the library would not log
            log.exception("a connection failed")
        finally:
            self.outbox.close(now=True)
            self.daemon.clients.discard(self.outbox)
            await self.leave()

    async def close(self, code: int, reason: str) -> None:
        """Send the queued messages, then close; without an answer the connection is aborted."""
        self.outbox.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self.outbox.sent.wait()
                await self._socket.close(code, reason)
        except TimeoutError:
            self._socket.abort()

    async def _receive_all(self) -> None:
        while True:
            message = await self._socket.recv()
            if isinstance(message, bytes):
                await self.close(CloseCode.UNSUPPORTED_DATA, "text frames only")
                return
            self._receive(message)

    def _drop(self) -> None:
        """Close the connection of a client that does not read."""
        log.warning("a connection was closed: its client does not read its messages")
        self.daemon.metrics.add("slow_clients_total")
        self.outbox.close(now=True)
        self._spawn(self.close(CloseCode.TRY_AGAIN_LATER, "the client does not read its messages"))
        self.cancel_requests()

    def _receive(self, text: str) -> None:
        try:
            message = jsonrpc.decode(text)
            if not isinstance(message, Call):
                return  # a response: the daemon sends no requests
            if message.id is None:
                self._take_notification(message)
            else:
                self._take_request(message, message.id)
        except (ProtocolFault, LocalspecError) as error:
            id = error.id if isinstance(error, ProtocolFault) else message.id
            self.count_refusal(error)
            self.outbox.put(jsonrpc.failure(id, error).encode())

    def _take_notification(self, call: Call) -> None:
        """Handle a notification, which gets no answer, not even when it is malformed."""
        if call.method == "$/cancelRequest" and self._initialized:
            with suppress(ProtocolFault):
                if (exchange := self._live.get(messages.params_of(call).id)) is not None:
                    exchange.cancel()

    def _take_request(self, call: Call, id: Id) -> None:
        if id in self._live:
            # Answered without its id, which is that of the running request.
            raise ProtocolFault(jsonrpc.INVALID_REQUEST, f"a request with the id {id!r} is still running")
        if call.method == "initialize":
            self._initialize(messages.params_of(call), id)
            return
        if not self._initialized:
            raise NotInitialized(f"the first request must be initialize, not {call.method[:40]!r}")
        params = messages.params_of(call)
        if call.method == "$/cancelRequest":
            raise ProtocolFault(jsonrpc.INVALID_REQUEST, "$/cancelRequest is a notification: no id", id)
        self.begin(WireExchange(id, self.outbox), call.method, params)

    def _initialize(self, params: messages.Initialize, id: Id) -> None:
        if self._initialized:
            raise ProtocolFault(jsonrpc.INVALID_REQUEST, "already initialized", id)
        if params.protocol != messages.PROTOCOL:
            is_older = params.protocol < messages.PROTOCOL
            raise VersionSkew(
                f"the client {params.client.name} {params.client.version} speaks protocol {params.protocol}, "
                f"but this daemon (localspec {__version__}) speaks protocol {messages.PROTOCOL}",
                "Update the client: it is older than the daemon." if is_older else None,
            )
        self._initialized = True
        limits = self.daemon.config.daemon
        result = messages.Initialized(
            protocol=messages.PROTOCOL,
            server=messages.ServerInfo("localspec", __version__),
            limits=messages.WireLimits(limits.max_frame, limits.max_in_flight),
            models=tuple(ready.model for _, ready in self.daemon.pool.list_loaded()),
            settings=self.daemon.settings.state(),
        )
        self.outbox.put(jsonrpc.result(id, result).encode())
