"""The HTTP server's process: started with the daemon, restarted after a failure, ended with the daemon."""

from __future__ import annotations

import asyncio
import logging
from importlib.util import find_spec

from localspec import home
from localspec import process as processes
from localspec.errors import ExitCode

log = logging.getLogger(__name__)

COMMAND = processes.python("localspec.http")
PACKAGES = ("starlette", "uvicorn")
PAUSES_S = (1, 5, 30, 120)
"""seconds before each restart after failures in a row; the last holds for all further ones"""
STOP_S = 3.0
STDERR = 2


def lacking() -> list[str]:
    """The packages that the HTTP server needs and that are not installed."""
    return [name for name in PACKAGES if find_spec(name) is None]


def leave_open() -> None:
    """Have the next daemon, which replaces one started with ``--http``, start the HTTP server, too."""
    home.left_open_path().touch()


def was_left_open() -> bool:
    """True if this daemon replaces one started with ``--http``; the mark of that is removed."""
    try:
        home.left_open_path().unlink()
    except FileNotFoundError:
        return False
    return True


class HttpServer:
    """The process and its state: ``url`` while it listens, ``problem`` with the reason why it does not.

    ``flag``: it was asked for by ``--http``, whatever the settings say.
    """

    def __init__(self) -> None:
        self.url: str | None = None
        self.problem: str | None = None
        self.flag = False

    async def run(self) -> None:
        """Keep the process running until this is cancelled, or until it lacks a package."""
        failures = 0
        while True:
            was_open, code = await self._once()
            if not was_open and self.problem is None:
                self.problem = f"the HTTP door's process ended ({code}) before it was open"
            if code == ExitCode.UNAVAILABLE:
                return  # a restart would lack the same package
            failures = 1 if was_open else failures + 1
            pause = PAUSES_S[min(failures, len(PAUSES_S)) - 1]
            log.warning("the HTTP door ended (%d); it is opened again in %d s", code, pause)
            await asyncio.sleep(pause)

    async def _once(self) -> tuple[bool, int]:
        """Run the process to its end; returns whether it listened, and its exit code.

        Its standard output is one line: the address, or the reason why there is none.
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
            self.problem = f"the HTTP door cannot be started: {error}"
            log.warning("%s", self.problem)
            return False, ExitCode.ERROR
        assert process.stdin is not None and process.stdout is not None
        try:
            line = (await process.stdout.readline()).decode().strip() or None
            if is_open := line is not None and line.startswith("http://"):
                self.url, self.problem = line, None
                log.info("the HTTP door is at %s", line)
            else:
                self.problem = line
            return is_open, await process.wait()
        finally:
            self.url = None
            process.stdin.close()
            await _gone(process)


async def _gone(process: asyncio.subprocess.Process) -> None:
    try:
        async with asyncio.timeout(STOP_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
