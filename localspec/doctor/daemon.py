"""The daemon, as this machine's clients meet it, and the socket that they reach it by."""

from __future__ import annotations

import asyncio
import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from localspec._version import __version__
from localspec.doctor.finding import Finding, problem_of
from localspec.errors import LocalspecError, VersionSkew
from localspec.protocol.messages import DaemonStatus, Discovery

ANSWER_S = 5.0
"""how long a daemon may take to answer"""
NO_DAEMON = Finding("daemon", "ok", "No daemon runs; the first command that needs one starts it.")


class Asked(NamedTuple):
    """Where a daemon said it listens, and what it answered; it may have been killed since."""

    found: Discovery | None = None
    status: DaemonStatus | None = None
    error: LocalspecError | None = None
    """what came instead of an answer, where that was one"""


def ask() -> Asked:
    """Whoever listens. Raises :class:`LocalspecError` where there is no place for a daemon."""
    return asyncio.run(_ask())


async def _ask() -> Asked:
    from localspec.client import connect, discovery
    from localspec.errors import DaemonUnavailable

    found = discovery.find()
    if found is None:
        return Asked()
    try:
        async with asyncio.timeout(ANSWER_S), await connect(start=False) as client:
            return Asked(found, await client.status())
    except (DaemonUnavailable, TimeoutError):
        return Asked(found)
    except LocalspecError as error:
        return Asked(found, error=error)


def daemon(asked: Asked) -> Finding:
    """Whether one runs, answers, and is the one that a command would start."""
    if asked.error is not None:
        found = problem_of("daemon", asked.error)
        return found if not isinstance(asked.error, VersionSkew) else _as_warning(found)
    if asked.status is None:
        silent = asked.found if _lives(asked.found) else None
        return NO_DAEMON if silent is None else _silent(silent.pid)
    version, pid = asked.status.version, asked.status.pid
    if version != __version__:
        told = f"The daemon (pid {pid}) is localspec {version}, this command is {__version__}."
        return Finding("daemon", "warning", told, "Run `localspec daemon restart`.")
    if asked.status.settings == "changed":
        told = f"The daemon (pid {pid}) runs with other settings than config.toml has now."
        step = "The next command that asks it replaces it if idle; `localspec daemon restart` does at once."
        return Finding("daemon", "warning", told, step)
    return Finding("daemon", "ok", f"The daemon runs (pid {pid}, localspec {version}).")


def _as_warning(found: Finding) -> Finding:
    return Finding(found.name, "warning", found.sentence, found.remedy)


def _silent(pid: int) -> Finding:
    """One that has said where it listens, and does not."""
    return Finding("daemon", "problem", f"The daemon (pid {pid}) does not answer.", f"End it: kill -9 {pid}")


def _lives(found: Discovery | None) -> bool:
    """Whether the process that a discovery file names is still that one; a number may have been reused."""
    try:
        return found is not None and "localspec.daemon" in psutil.Process(found.pid).cmdline()
    except psutil.Error:
        return False


# The socket.


def sockets(asked: Asked, runtime: Path) -> Iterator[Finding]:
    """What stands in ``runtime``, where a daemon listens or the next one will."""
    from localspec.daemon.listeners import SOCKET_NAME

    socket, lock = runtime / SOCKET_NAME, runtime / "daemon.lock"
    findings = [*_too_long(socket), *_another_s(socket)]
    if not findings and asked.status is None and asked.error is None and not _lives(asked.found):
        findings = [*_held(lock)] or [*_left(socket, runtime / "daemon.json")]
    yield from findings
    if not findings:
        yield Finding("sockets", "ok", _listening(asked, socket))


def _listening(asked: Asked, socket: Path) -> str:
    if asked.found is None:
        return f"Nobody listens; {socket} is where a daemon will."
    return f"{asked.found.socket or 'no Unix socket'} and {asked.found.url}, for you alone."


def _too_long(socket: Path) -> Iterator[Finding]:
    from localspec.daemon.listeners import SOCKET_PATH_BYTES

    length = len(os.fsencode(socket))
    if length > SOCKET_PATH_BYTES:
        told = f"{socket} has {length} bytes, a Unix socket's address at most {SOCKET_PATH_BYTES}: TCP only."
        yield Finding("sockets", "warning", told, "Set LOCALSPEC_HOME to a shorter path.")


def _another_s(socket: Path) -> Iterator[Finding]:
    """What the next daemon could not replace, or what is not ours to replace."""
    try:
        found = os.lstat(socket)
    except OSError:
        return
    quoted = shlex.quote(str(socket))
    if os.name == "posix" and found.st_uid != os.geteuid():
        yield Finding("sockets", "problem", f"{socket} is another user's.", f"Remove it: sudo rm -r {quoted}")
    elif stat.S_ISDIR(found.st_mode):
        yield Finding("sockets", "problem", f"{socket} is a directory.", f"Remove it: rm -r {quoted}")


def _held(lock: Path) -> Iterator[Finding]:
    """The lock of the one daemon, where something has it that does not listen."""
    from filelock import FileLock, Timeout

    if not lock.exists():
        return
    try:
        with FileLock(lock, timeout=0, mode=0o600):
            return
    except Timeout:
        told = f"Something holds {lock} and does not listen: no daemon can start."
        step = f"If it is not just starting, end it: fuser -k {shlex.quote(str(lock))}"
        yield Finding("sockets", "problem", told, step)


def _left(*places: Path) -> Iterator[Finding]:
    left = [str(place) for place in places if os.path.lexists(place)]
    if left:
        told = f"A daemon that was killed left {' and '.join(left)} behind."
        yield Finding("sockets", "warning", told, "The next one clears that away: `localspec daemon start`.")
