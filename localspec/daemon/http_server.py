"""The HTTP server's process: started with the daemon, restarted after a failure, ended with the daemon."""

from __future__ import annotations

import asyncio
import logging
from importlib.util import find_spec

import msgspec

from localspec import home
from localspec import process as processes
from localspec.errors import DaemonUnavailable, ExitCode, LocalspecError, from_dict

log = logging.getLogger(__name__)

COMMAND = processes.python("localspec.http")
PACKAGES = ("starlette", "uvicorn")
PAUSES_S = (1, 5, 30, 120)
"""seconds before each restart after failures in a row; the last holds for all further ones"""
STOP_S = 3.0
STDERR = 2
AGAIN = "Run `localspec daemon restart`; `localspec daemon logs` has more."
RESTART, RUN = "`localspec daemon restart`", "`localspec daemon run --http`"


def lacking() -> list[str]:
    """The packages that the HTTP server needs and that are not installed."""
    return [name for name in PACKAGES if find_spec(name) is None]


def leave_open() -> None:
    """Have the next daemon, which replaces one started with ``--http``, start the HTTP server, too."""
    home.left_open_path().touch()


def was_left_open() -> bool:
    """True if this daemon replaces one started with ``--http``; the mark of that is removed."""
    mark = home.left_open_path()
    is_marked = mark.exists()
    mark.unlink(missing_ok=True)
    return is_marked


class HttpServer:
    """The process and its state: ``url`` while it listens, ``problem`` with the reason why it does not.

    ``flag``: ``--http`` was given, which overrides the settings.
    """

    def __init__(self) -> None:
        self.url: str | None = None
        self.problem: LocalspecError | None = None
        self.flag = False

    async def run(self, *, must_open: bool = False) -> None:
        """Keep the process running until this is cancelled, or until it lacks a package.

        Raises :class:`DaemonUnavailable` if the first process does not listen and ``must_open`` is set.
        """
        failures = 0
        while True:
            was_open, code = await self._once()
            if not was_open and must_open and self.problem is not None:
                raise DaemonUnavailable(self.problem.message, self.problem.remedy.replace(RESTART, RUN))
            must_open = False
            if not was_open and self.problem is not None:
                log.error("HTTP server: %s. %s", self.problem.message, self.problem.remedy)
            if code == ExitCode.UNAVAILABLE:
                return  # a restart would lack the same package
            failures = 1 if was_open else failures + 1
            pause = PAUSES_S[min(failures, len(PAUSES_S)) - 1]
            log.warning("the HTTP server ended (%d); it is restarted in %d s", code, pause)
            await asyncio.sleep(pause)

    async def _once(self) -> tuple[bool, int]:
        """Run the process to its end; returns whether it listened, and its exit code.

        Its standard output is one line: the address, or the error that prevents one.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                *COMMAND,
                stdin=asyncio.subprocess.PIPE,  # closed when this process ends, for any reason
                stdout=asyncio.subprocess.PIPE,
                stderr=STDERR,
                start_new_session=True,
                **processes.surroundings(),
            )
        except OSError as error:
            self.problem = DaemonUnavailable(f"the HTTP server cannot be started: {error}", AGAIN)
            return False, ExitCode.ERROR
        assert process.stdin is not None and process.stdout is not None
        try:
            line = (await process.stdout.readline()).decode().strip()
            if is_open := line.startswith("http://"):
                self.url, self.problem = line, None
                log.info("the HTTP server listens at %s", line)
            code = await process.wait()
            if not is_open:
                self.problem = _problem(line, code)
            return is_open, code
        finally:
            self.url = None
            process.stdin.close()
            await _gone(process)


def _problem(line: str, code: int) -> LocalspecError:
    """The error that the process has printed before it exited with ``code``."""
    try:
        return from_dict(msgspec.json.decode(line, type=dict[str, str]))
    except msgspec.MsgspecError:
        sentence = f"the HTTP server's process exited with code {code} before it listened"
        return DaemonUnavailable(sentence, AGAIN)


async def _gone(process: asyncio.subprocess.Process) -> None:
    try:
        async with asyncio.timeout(STOP_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
