"""The HTTP door's process: started with the daemon, again when it ends by itself, and ended with it."""

from __future__ import annotations

import asyncio
import logging
from importlib.util import find_spec

from localspec import home
from localspec import process as processes
from localspec.daemon.daemon import Daemon
from localspec.errors import ExitCode

log = logging.getLogger(__name__)

COMMAND = processes.python("localspec.http")
PACKAGES = ("starlette", "uvicorn")
PAUSES_S = (1, 5, 30, 120)
"""after each failure in a row; then always the last"""
STOP_S = 3.0
STDERR = 2


def lacking() -> list[str]:
    """The packages without which there is no door."""
    return [name for name in PACKAGES if find_spec(name) is None]


def leave_open() -> None:
    """Have the next daemon open the door, too: it replaces one that was told to."""
    home.left_open_path().touch()


def was_left_open() -> bool:
    """Whether this daemon replaces one that was told to open the door; no other does so again."""
    try:
        home.left_open_path().unlink()
    except FileNotFoundError:
        return False
    return True


async def keep_open(daemon: Daemon) -> None:
    """Have a door until this is cancelled; ``daemon.http`` is its address while it is there, and
    ``daemon.http_problem`` says why it is not."""
    failures = 0
    while True:
        was_open, code = await _once(daemon)
        if not was_open and daemon.http_problem is None:
            daemon.http_problem = f"the HTTP door's process ended ({code}) before it was open"
        if code == ExitCode.UNAVAILABLE:
            return  # it has said what it lacks, and lacks it the next time, too
        failures = 1 if was_open else failures + 1
        pause = PAUSES_S[min(failures, len(PAUSES_S)) - 1]
        log.warning("the HTTP door ended (%d); it is opened again in %d s", code, pause)
        await asyncio.sleep(pause)


async def _once(daemon: Daemon) -> tuple[bool, int]:
    """Run the process to its end; returns whether it was open, and the exit code.

    It says one line: its address, or why there is none.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            stdin=asyncio.subprocess.PIPE,  # ends with this process, however that ends
            stdout=asyncio.subprocess.PIPE,
            stderr=STDERR,
            start_new_session=True,
            **processes.surroundings(),
        )
    except OSError as error:
        daemon.http_problem = f"the HTTP door cannot be started: {error}"
        log.warning("%s", daemon.http_problem)
        return False, ExitCode.ERROR
    assert process.stdin is not None and process.stdout is not None
    try:
        said = (await process.stdout.readline()).decode().strip() or None
        if is_open := said is not None and said.startswith("http://"):
            daemon.http, daemon.http_problem = said, None
            log.info("the HTTP door is at %s", said)
        else:
            daemon.http_problem = said
        return is_open, await process.wait()
    finally:
        daemon.http = None
        process.stdin.close()
        await _gone(process)


async def _gone(process: asyncio.subprocess.Process) -> None:
    try:
        async with asyncio.timeout(STOP_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
