"""The requests of one client: each in a task of its own, answered exactly once, within limits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from localspec.daemon.daemon import Daemon
from localspec.daemon.methods import chat, completions, generation, memory, models, status
from localspec.daemon.relay import Exchange, Subscriber
from localspec.errors import LocalspecError, QueueFull, ShuttingDown, of_system
from localspec.protocol import jsonrpc, messages
from localspec.protocol.jsonrpc import Id, Params, ProtocolFault
from localspec.protocol.requests import Result

log = logging.getLogger(__name__)

Handler = Callable[[Daemon, Exchange, Any], Awaitable[object]]

HANDLERS: dict[str, Handler] = {
    "models/list": models.list_all,
    "models/load": models.load,
    "models/unload": models.unload,
    "session/open": chat.open_new,
    "session/list": chat.list_some,
    "session/get": chat.get,
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
    "tokenize": models.tokenize,
    "completion/inline": completions.inline,
    "completion/feedback": completions.feedback,
    "completion/warm": completions.warm,
    "memory/stats": memory.stats,
    "memory/forget": memory.forget,
    "memory/prime": memory.prime,
    "events/subscribe": status.events_subscribe,
    "metrics": status.metrics,
    "daemon/status": status.daemon_status,
    "daemon/shutdown": status.daemon_shutdown,
}
"""a handler for each method; connections answer ``initialize`` and ``$/cancelRequest`` themselves"""

NEED_A_MODEL = {
    *("models/load", "session/open", "session/configure", "generate", "tokenize"),
    *("chat/send", "chat/edit", "chat/regenerate", "chat/results", "completion/inline", "completion/warm"),
}
"""methods that count towards the limit of all connections together, and wait for a load"""

WORK = NEED_A_MODEL | {"memory/forget", "memory/prime", "session/delete"}
"""methods that keep the daemon busy: a shutdown would interrupt them"""


class Requests:
    """Runs the requests of ``peer``, from :meth:`join` to :meth:`leave`."""

    def __init__(self, daemon: Daemon, peer: Subscriber) -> None:
        self.daemon = daemon
        self._peer = peer
        self._live: dict[Id, Exchange] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def join(self) -> None:
        self.daemon.connections.add(self)
        self.daemon.metrics.add("connections")
        self.daemon.metrics.add("connections_opened_total")

    async def leave(self) -> None:
        """End the requests of a lost client, and wait for the ends."""
        try:
            for exchange in tuple(self._live.values()):
                exchange.on_lost()
            await self._requests_ended()
        except Exception:  # a defect of localspec: it must not occupy a place for ever
            log.exception("the end of a connection failed")
        finally:
            if self in self.daemon.connections:
                self.daemon.connections.remove(self)
                self.daemon.metrics.add("connections", -1)

    def begin(self, exchange: Exchange, method: str, params: Params) -> None:
        """Start a request. Raises :class:`ShuttingDown`, and :class:`QueueFull` beyond a limit."""
        self._check_room(method)
        self._live[exchange.id] = exchange
        if method in WORK:
            self.daemon.busy.add(exchange)
        self._spawn(self._answer(exchange, method, params))

    def cancel_requests(self) -> None:
        for exchange in tuple(self._live.values()):
            exchange.cancel()

    async def end_requests(self) -> None:
        self.cancel_requests()
        await self._requests_ended()

    async def close(self, code: int, reason: str) -> None:
        """Send what waits, then close the connection."""
        raise NotImplementedError

    def count_refusal(self, error: LocalspecError | ProtocolFault) -> None:
        self.daemon.metrics.add("requests_total", method="refused", ending=_ending(error))

    async def _requests_ended(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.daemon.editors.leave(self._peer)

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
