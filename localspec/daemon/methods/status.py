"""Methods of the daemon itself: its events, metrics and status, and its end."""

from __future__ import annotations

import os
import time

from localspec import home
from localspec._version import __version__
from localspec.daemon.daemon import Daemon
from localspec.daemon.methods.models import describe_worker, resident_bytes
from localspec.daemon.relay import Exchange
from localspec.errors import EngineBusy
from localspec.protocol import messages


async def events_subscribe(
    daemon: Daemon, exchange: Exchange, params: messages.NoParams
) -> messages.NoParams:
    exchange.client.subscribed = True
    return messages.NoParams()


async def metrics(daemon: Daemon, exchange: Exchange, params: messages.NoParams) -> messages.DaemonMetrics:
    return messages.DaemonMetrics(daemon.metrics.totals(), daemon.metrics.text())


async def daemon_status(
    daemon: Daemon, exchange: Exchange, params: messages.NoParams
) -> messages.DaemonStatus:
    problem = daemon.http_problem
    return messages.DaemonStatus(
        pid=os.getpid(),
        version=__version__,
        protocol=messages.PROTOCOL,
        uptime_s=time.monotonic() - daemon.started,
        socket=daemon.socket,
        resident_bytes=resident_bytes(os.getpid()),
        connections=len(daemon.connections),
        running=len(daemon.busy),
        models=tuple(
            describe_worker(daemon.pool, worker, worker.pair) for worker, _ in daemon.pool.list_loaded()
        ),
        settings=daemon.settings.state(),
        http=daemon.http,
        http_problem=None if problem is None else problem.message,
        http_remedy=None if problem is None else problem.remedy,
        history_problem=daemon.history.problem.remedy if daemon.history.problem else None,
    )


async def daemon_shutdown(
    daemon: Daemon, exchange: Exchange, params: messages.DaemonShutdown
) -> messages.NoParams:
    if params.if_idle:
        if await daemon.history.has_private():
            raise EngineBusy(
                "the daemon holds chats in memory only (private, or not stored on a full disk), which would "
                "be lost",
                "End these chats, or run `localspec daemon stop`.",
            )
        if daemon.busy:
            raise EngineBusy(f"the daemon is busy (requests: {len(daemon.busy)})")
        if daemon.http_flag:
            home.left_open_path().touch()
    daemon.stopping.set()
    return messages.NoParams()
