"""``python -m localspec.daemon``: run the daemon in the foreground, logging to stderr or to its file.

Exits 0 after a requested stop. If another daemon is listening already, exits 0 for a client or a service,
with 69 for a user; also with 69 if it cannot become the daemon, or ``--http`` is given and the HTTP server
cannot listen.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import sqlite3
import sys
from collections.abc import Callable
from functools import partial

from localspec.config import Config, load_config
from localspec.daemon.metrics import OneLine, keep_small, redirect
from localspec.daemon.server import Server, claim, notify_supervisor, raise_limit
from localspec.daemon.workers.pool import COMMAND, Program
from localspec.errors import DaemonUnavailable, ExitCode, LocalspecError
from localspec.http.server import served
from localspec.wording import printable

log = logging.getLogger("localspec.daemon")


def main(arguments: list[str] | None = None, worker: Program = COMMAND) -> int:
    """Run a daemon; returns its exit code."""
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
        server = partial(Server, worker=worker, serve_http=served, http=given.http)
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
    ready_fd: int | None, server: Callable[[Config], Server], *, bounded: bool, must_be_mine: bool
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


async def _serve(server: Server, ready_fd: int | None, *, bounded: bool) -> None:
    keeping = asyncio.create_task(keep_small()) if bounded else None
    try:
        await server.run(on_ready=lambda: _report_ready(ready_fd))
    finally:
        if keeping is not None:
            keeping.cancel()


def _report_ready(ready_fd: int | None) -> None:
    """Report to the client or the supervisor that started this process that a daemon listens."""
    notify_supervisor("READY=1")
    if ready_fd is not None:
        with contextlib.suppress(BrokenPipeError):  # the client is gone; others may come
            os.write(ready_fd, b"1")
        os.close(ready_fd)


if __name__ == "__main__":
    sys.exit(main())
