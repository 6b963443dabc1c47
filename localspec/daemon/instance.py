"""One daemon per user, ensured by a lock; the running one's addresses are in the discovery file."""

from __future__ import annotations

import shlex
import time

import msgspec
import psutil
from filelock import FileLock, Timeout

from localspec import home
from localspec.errors import DaemonUnavailable
from localspec.protocol.messages import Discovery
from localspec.regular import read_regular

PATIENCE_S = 5.0
"""seconds to wait for the lock of a daemon that is starting or stopping"""
STEP_S = 0.1
LARGEST = 1 << 20
"""bytes of an announcement"""


def claim() -> FileLock | None:
    """Take the lock of the one daemon; returns None if another one is listening already.

    Waits for a daemon that is starting or stopping, and raises :class:`DaemonUnavailable` if that takes too
    long. A discovery file left behind by a killed daemon is removed.
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
    raise DaemonUnavailable(
        f"another daemon holds the lock {lock.lock_file}, but has not listened for {PATIENCE_S:.0f} s",
        f"Find it with `fuser {shlex.quote(lock.lock_file)}`, then end it.",
    )


def _announced() -> bool:
    """Return True if the daemon that holds the lock listens: the announcement is of a living process."""
    try:
        found = msgspec.json.decode(read_regular(home.discovery_path(), LARGEST) or b"", type=Discovery)
    except (OSError, msgspec.MsgspecError):
        return False
    return psutil.pid_exists(found.pid)
