"""One daemon per user: the lock that says so, and the file that says where it listens."""

from __future__ import annotations

import time

import msgspec
import psutil
from filelock import FileLock, Timeout

from localspec import home
from localspec.errors import DaemonUnavailable
from localspec.protocol.messages import Discovery

PATIENCE_S = 5.0
"""how long a daemon that is just stopping may keep the lock"""
STEP_S = 0.1


def claim() -> FileLock | None:
    """The lock of the one daemon; None if another one is listening already.

    Waits for one that is starting or stopping, and raises :class:`DaemonUnavailable` if that
    takes too long. A discovery file left behind by a killed daemon is removed.
    """
    lock = FileLock(home.runtime_dir() / "daemon.lock")
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            lock.acquire(timeout=STEP_S)
        except Timeout:
            if _announced():
                return None
        else:
            home.discovery_path().unlink(missing_ok=True)
            return lock
    raise DaemonUnavailable("another daemon holds the lock, but does not listen", "Try again in a moment.")


def _announced() -> bool:
    """Whether the daemon that holds the lock listens: its own announcement, not a dead one's."""
    try:
        found = msgspec.json.decode(home.discovery_path().read_bytes(), type=Discovery)
    except (OSError, msgspec.MsgspecError):
        return False
    return psutil.pid_exists(found.pid)
