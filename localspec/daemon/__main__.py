"""``python -m localspec.daemon``: run the daemon in the foreground, logging to stderr.

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

from localspec.config import load_config
from localspec.daemon import instance
from localspec.daemon.pool import COMMAND
from localspec.daemon.server import Server
from localspec.errors import ExitCode, LocalspecError

log = logging.getLogger("localspec.daemon")


def main(arguments: list[str] | None = None, worker_command: tuple[str, ...] = COMMAND) -> int:
    """Run a daemon; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m localspec.daemon", description="Run the daemon.")
    parser.add_argument("--ready-fd", type=int, help="write one byte here once a daemon listens")
    ready_fd: int | None = parser.parse_args(arguments).ready_fd
    os.umask(0o077)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # Its errors are about handshakes that were refused, which is no fault of ours.
    logging.getLogger("websockets").setLevel(logging.CRITICAL)
    # Its warnings are a line for every message to a client that is gone: thousands.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    try:
        return _run(ready_fd, worker_command)
    except LocalspecError as error:
        log.error("%s. %s", error.message, error.remedy)
        return error.exit_code
    except (OSError, sqlite3.Error) as error:
        # A file of ours is a directory, a disk is full: one line, for the log and for whoever waits.
        log.error("the daemon's files cannot be used: %s. Run `localspec daemon run` to see more.", error)
        return ExitCode.ERROR


def _run(ready_fd: int | None, worker_command: tuple[str, ...]) -> int:
    config = load_config()
    lock = instance.claim()
    if lock is None:
        log.info("a daemon is already running")
        _tell(ready_fd)
        return ExitCode.OK
    try:
        asyncio.run(Server(config, worker_command).run(on_ready=lambda: _tell(ready_fd)))
    finally:
        lock.release()
    return ExitCode.OK


def _tell(ready_fd: int | None) -> None:
    if ready_fd is not None:
        with contextlib.suppress(BrokenPipeError):  # whoever asked is gone; others may come
            os.write(ready_fd, b"1")
        os.close(ready_fd)


if __name__ == "__main__":
    sys.exit(main())
