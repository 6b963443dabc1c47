"""The limit on this process's open files; every connection is one of them."""

from __future__ import annotations

import contextlib
import resource

OWN = 24
"""sockets, databases and logs of the daemon itself, and the pipes of a process that it starts"""
WANTED = 4096


def raise_limit() -> None:
    """Raise the limit to :data:`WANTED` as far as the system allows; some systems begin with 256."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections(most: int) -> int:
    """The number of concurrent connections that the limit leaves files for, from 1 to ``most``."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else max(1, min(most, soft - OWN))
