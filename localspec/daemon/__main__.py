"""``python -m localspec.daemon``: run the daemon in the foreground, logging to stderr or to its file.

Exits 0 after a stop that was asked for, and at once if another daemon is listening already: then
what was wanted is there. Exits 69 if it cannot become the daemon.
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
from localspec.daemon import files, instance, supervisor
from localspec.daemon.log import OneLine, keep_small, redirect
from localspec.daemon.server import Server
from localspec.daemon.workers.pool import COMMAND, Program
from localspec.errors import ExitCode, LocalspecError

log = logging.getLogger("localspec.daemon")


def main(arguments: list[str] | None = None, worker: Program = COMMAND) -> int:
    """Run a daemon; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m localspec.daemon", description="Run the daemon.")
    parser.add_argument("--ready-fd", type=int, help="write one byte here once a daemon listens")
    parser.add_argument("--http", action="store_true", help="open the HTTP door, too")
    parser.add_argument("--log", action="store_true", help="log to the home's daemon.log instead of stderr")
    said = parser.parse_args(arguments)
    os.umask(0o077)
    files.raise_limit()
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # Its errors are about handshakes that were refused, which is no fault of ours.
    logging.getLogger("websockets").setLevel(logging.CRITICAL)
    # Its warnings are a line for every message to a client that is gone: thousands.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    try:
        if said.log:
            redirect()
        server = partial(Server, worker=worker, http=said.http)
        return _run(said.ready_fd, server, bounded=said.log, must_be_mine=said.http)
    except LocalspecError as error:
        log.error("%s. %s", error.message, error.remedy)
        return error.exit_code
    except (OSError, sqlite3.Error) as error:
        # A file of ours is a directory, a disk is full: one line, for the log and for whoever waits.
        log.error("the daemon's files cannot be used: %s. Run `localspec daemon run` to see more.", error)
        return ExitCode.ERROR


def _run(
    ready_fd: int | None, server: Callable[[Config], Server], *, bounded: bool, must_be_mine: bool
) -> int:
    config = load_config()
    lock = instance.claim()
    if lock is None and must_be_mine:
        log.error("a daemon is already running. Run `localspec daemon stop` first.")
        return ExitCode.ERROR
    if lock is None:
        log.info("a daemon is already running")
        _tell(ready_fd)
        return ExitCode.OK
    try:
        asyncio.run(_serve(server(config), ready_fd, bounded=bounded))
    finally:
        lock.release()
    return ExitCode.OK


async def _serve(server: Server, ready_fd: int | None, *, bounded: bool) -> None:
    keeping = asyncio.create_task(keep_small()) if bounded else None
    try:
        await server.run(on_ready=lambda: _tell(ready_fd))
    finally:
        if keeping is not None:
            keeping.cancel()


def _tell(ready_fd: int | None) -> None:
    """A daemon listens: tell the client or the supervisor that started this process."""
    supervisor.tell("READY=1")
    if ready_fd is not None:
        with contextlib.suppress(BrokenPipeError):  # whoever asked is gone; others may come
            os.write(ready_fd, b"1")
        os.close(ready_fd)


if __name__ == "__main__":
    sys.exit(main())
