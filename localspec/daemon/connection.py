"""One client: its requests, each answered exactly once, and its limits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from localspec._version import __version__
from localspec.daemon.access import CLOSE_S
from localspec.daemon.daemon import Daemon
from localspec.daemon.methods import chat, completions, generation, memory
from localspec.daemon.relay import Exchange, Outbox, Socket
from localspec.errors import LocalspecError, NotInitialized, QueueFull, ShuttingDown, VersionSkew, of_system
from localspec.protocol import jsonrpc, messages
from localspec.protocol.jsonrpc import Call, Id, Params, ProtocolFault
from localspec.protocol.requests import Result

log = logging.getLogger(__name__)

Handler = Callable[[Daemon, Exchange, Any], Awaitable[object]]

HANDLERS: dict[str, Handler] = {
    "models/list": generation.list_all,
    "models/load": generation.load,
    "models/unload": generation.unload,
    "session/open": chat.open_new,
    "session/list": chat.list_some,
    "session/get": chat.get,
    "session/close": chat.close,
    "session/delete": chat.delete,
    "session/rename": chat.rename,
    "session/configure": chat.configure,
    "session/fork": chat.fork,
    "chat/send": chat.send,
    "chat/edit": chat.edit,
    "chat/regenerate": chat.regenerate,
    "chat/results": chat.results,
    "stream/resume": generation.resume,
    "generate": generation.generate_text,
    "tokenize": generation.tokenize,
    "completion/inline": completions.inline,
    "completion/feedback": completions.feedback,
    "completion/warm": completions.warm,
    "memory/stats": memory.stats,
    "memory/forget": memory.forget,
    "memory/prime": memory.prime,
    "events/subscribe": generation.events_subscribe,
    "metrics": generation.metrics,
    "daemon/status": generation.daemon_status,
    "daemon/shutdown": generation.daemon_shutdown,
}
"""a handler for each method; the connection itself answers ``initialize`` and ``$/cancelRequest``"""

NEED_A_MODEL = frozenset(
    {
        *("models/load", "session/open", "session/configure"),
        *("chat/send", "chat/edit", "chat/regenerate", "chat/results"),
        *("generate", "tokenize", "completion/inline", "completion/warm"),
    }
)
"""methods that count towards the limit of all connections together, and wait for a load"""

WORK = NEED_A_MODEL | {"memory/forget", "memory/prime", "session/delete"}
"""methods that keep the daemon busy: a shutdown would interrupt them"""


class Connection:
    """Reads requests and runs each in a task of its own.

    The end of the connection cancels its requests; the streams of chats go on for a while.
    """

    def __init__(self, socket: Socket, daemon: Daemon) -> None:
        self.daemon = daemon
        limits = daemon.config.daemon
        self.outbox = Outbox(socket, limits.send_buffer, limits.slow_client_s, self._drop)
        self._socket = socket
        self._initialized = False
        self._live: dict[Id, Exchange] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # The life of a connection.

    async def serve(self) -> None:
        """Answer until the client is gone and its requests have ended."""
        self.daemon.connections.add(self)
        self.daemon.events.clients.add(self.outbox)
        self.daemon.metrics.add("connections")
        self.daemon.metrics.add("connections_opened_total")
        try:
            await self._receive_all()
        except ConnectionClosed:
            pass  # the client has left, or the connection was lost
        except Exception:  # a defect of localspec, which the library would not log
            log.exception("a connection failed")
        finally:
            await self._end()

    async def _end(self) -> None:
        """End its requests and release its place, whatever happens."""
        try:
            self.outbox.close(now=True)
            for exchange in tuple(self._live.values()):
                exchange.on_lost()
            await self._requests_ended()
        except Exception:  # a defect of localspec: it must not occupy a place for ever
            log.exception("the end of a connection failed")
        finally:
            self.daemon.events.clients.discard(self.outbox)
            self.daemon.connections.discard(self)
            self.daemon.metrics.add("connections", -1)

    async def end_requests(self) -> None:
        """Cancel every request, and wait until they are answered."""
        for exchange in tuple(self._live.values()):
            exchange.cancel()
        await self._requests_ended()

    async def _requests_ended(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.daemon.editors.leave(self.outbox)

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
        for exchange in tuple(self._live.values()):
            exchange.cancel()

    # Incoming messages.

    def _receive(self, text: str) -> None:
        try:
            message = jsonrpc.decode(text)
            if not isinstance(message, Call):
                return  # a response: the daemon sends no requests
            if message.id is None:
                self._notified(message)
            else:
                self._requested(message, message.id)
        except (ProtocolFault, LocalspecError) as error:
            id = error.id if isinstance(error, ProtocolFault) else message.id
            self.daemon.metrics.add("requests_total", method="refused", ending=_ending(error))
            self.outbox.put(jsonrpc.failure(id, error).encode())

    def _notified(self, call: Call) -> None:
        """Handle a notification, which gets no answer, not even when it is malformed."""
        if call.method == "$/cancelRequest" and self._initialized:
            try:
                params = messages.params_of(call)
            except ProtocolFault:
                return
            if (exchange := self._live.get(params.id)) is not None:
                exchange.cancel()

    def _requested(self, call: Call, id: Id) -> None:
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
        self._check_room(call.method)
        exchange = self._live[id] = Exchange(id, self.outbox)
        if call.method in WORK:
            self.daemon.busy.add(exchange)
        self._spawn(self._answer(exchange, call.method, params))

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
            limits=messages.Limits(limits.max_frame, limits.max_in_flight),
            models=tuple(ready.model for _, ready in self.daemon.pool.loaded()),
            settings=self.daemon.settings.state(),
        )
        self.outbox.put(jsonrpc.result(id, result).encode())

    def _check_room(self, method: str) -> None:
        limits = self.daemon.config.daemon
        if self.daemon.stopping.is_set():
            raise ShuttingDown("the daemon is stopping")
        if len(self._live) >= limits.max_in_flight:
            raise QueueFull(
                f"this connection already has its limit of {limits.max_in_flight} requests in flight; "
                "this one was refused",
                "Wait for one of them to end, or raise daemon.max_in_flight and run "
                "`localspec daemon restart`.",
            )
        if method in NEED_A_MODEL and len(self.daemon.busy) >= limits.max_queued:
            raise QueueFull(
                f"the daemon already has its limit of {limits.max_queued} requests waiting or running; "
                "this one was refused",
                "Try again later, or raise daemon.max_queued and run `localspec daemon restart`.",
            )

    # The requests.

    async def _answer(self, exchange: Exchange, method: str, params: Params) -> None:
        answer: object = None
        try:
            answer = await HANDLERS[method](self.daemon, exchange, params)
        except (LocalspecError, ProtocolFault) as error:
            answer = error
        except OSError as error:
            answer = of_system(error, f"{method} failed") or self._defect(method)
        except Exception:  # a defect in one handler must end one request, not the connection
            answer = self._defect(method)
        finally:
            self.daemon.busy.discard(exchange)
            self.daemon.metrics.add("requests_total", method=method, ending=_ending(answer))
            del self._live[exchange.id]
        exchange.answer(answer)

    def _defect(self, method: str) -> ProtocolFault:
        log.exception("%s failed", method)
        return ProtocolFault(
            jsonrpc.INTERNAL_ERROR, f"internal error in {method}: see `localspec daemon logs`"
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _ending(answer: object) -> str:
    """The ending of a request, for the metrics: a finish reason, an error's code, or ``ok``."""
    match answer:
        case Result():
            return answer.finish_reason
        case messages.Completions():
            return answer.result.finish_reason
        case LocalspecError():
            return answer.code
        case ProtocolFault():
            return str(answer.code)
        case _:
            return "ok"
