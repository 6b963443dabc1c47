"""The daemon as a client of this machine finds it, and its socket."""

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
from localspec.errors import DaemonUnavailable, LocalspecError, VersionSkew
from localspec.protocol.messages import DaemonStatus, Discovery

ANSWER_S = 5.0
"""seconds for a daemon to answer"""
NO_DAEMON = Finding("daemon", "ok", "No daemon runs; the first command that needs one starts it.")


class Asked(NamedTuple):
    """The discovery file of a daemon, and its status; the daemon may have been killed since."""

    found: Discovery | None = None
    status: DaemonStatus | None = None
    error: LocalspecError | None = None
    """the error that came instead of a status, if any"""


def ask() -> Asked:
    """The daemon that listens, if any. Raises :class:`LocalspecError` if its directory cannot be used."""
    return asyncio.run(_ask())


async def _ask() -> Asked:
    from localspec.client import connect, discovery

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
    """Check that the daemon answers, and has the version and settings of one that a command would start."""
    if asked.error is not None:
        found = problem_of("daemon", asked.error)
        return found if not isinstance(asked.error, VersionSkew) else _as_warning(found)
    if asked.status is None:
        silent = asked.found if _lives(asked.found) else None
        return NO_DAEMON if silent is None else _silent(silent.pid)
    version, pid = asked.status.version, asked.status.pid
    if version != __version__:
        sentence = f"The daemon (pid {pid}) is localspec {version}, this command is {__version__}."
        return Finding("daemon", "warning", sentence, "Run `localspec daemon restart`.")
    if asked.status.settings == "changed":
        sentence = f"The daemon (pid {pid}) runs with other settings than config.toml has now."
        step = "Run `localspec daemon restart`; otherwise the next command replaces the daemon if it is idle."
        return Finding("daemon", "warning", sentence, step)
    return Finding("daemon", "ok", f"The daemon runs (pid {pid}, localspec {version}).")


def _as_warning(found: Finding) -> Finding:
    return Finding(found.name, "warning", found.sentence, found.remedy)


def _silent(pid: int) -> Finding:
    """A daemon that runs, but does not answer at its address."""
    return Finding("daemon", "problem", f"The daemon (pid {pid}) does not answer.", f"End it: kill -9 {pid}")


def _lives(found: Discovery | None) -> bool:
    """Return True if the process of a discovery file is still that daemon; its id may have been reused."""
    try:
        return found is not None and "localspec.daemon" in psutil.Process(found.pid).cmdline()
    except psutil.Error:
        return False


# The socket.


def sockets(asked: Asked, runtime: Path) -> Iterator[Finding]:
    """Check the files in ``runtime``, the directory of the daemon's socket."""
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
        return f"No daemon listens; the next one listens on {socket}."
    return f"{asked.found.socket or 'no Unix socket'} and {asked.found.url}, accessible to you only."


def _too_long(socket: Path) -> Iterator[Finding]:
    from localspec.daemon.listeners import SOCKET_PATH_BYTES

    length = len(os.fsencode(socket))
    if length > SOCKET_PATH_BYTES:
        sentence = f"{socket} has {length} bytes, a Unix socket's path at most {SOCKET_PATH_BYTES}: TCP only."
        yield Finding("sockets", "warning", sentence, "Set LOCALSPEC_HOME to a shorter path.")


def _another_s(socket: Path) -> Iterator[Finding]:
    """A socket that the next daemon cannot replace: another user's file, or a directory."""
    try:
        found = os.lstat(socket)
    except OSError:
        return
    quoted = shlex.quote(str(socket))
    if os.name == "posix" and found.st_uid != os.geteuid():
        yield Finding(
            "sockets", "problem", f"{socket} belongs to another user.", f"Remove it: sudo rm -r {quoted}"
        )
    elif stat.S_ISDIR(found.st_mode):
        yield Finding("sockets", "problem", f"{socket} is a directory.", f"Remove it: `rm -r {quoted}`")


def _held(lock: Path) -> Iterator[Finding]:
    """The lock of the daemon, if a process that does not listen holds it."""
    from filelock import FileLock, Timeout

    if not lock.exists():
        return
    try:
        with FileLock(lock, timeout=0, mode=0o600):
            return
    except Timeout:
        sentence = f"A process holds {lock} and does not listen: no daemon can start."
        step = f"If it is not a daemon that is starting, end it: fuser -k {shlex.quote(str(lock))}"
        yield Finding("sockets", "problem", sentence, step)


def _left(*places: Path) -> Iterator[Finding]:
    left = [str(place) for place in places if os.path.lexists(place)]
    if left:
        sentence = f"A daemon that was killed left {' and '.join(left)} behind."
        yield Finding("sockets", "warning", sentence, "The next daemon removes it: `localspec daemon start`.")
