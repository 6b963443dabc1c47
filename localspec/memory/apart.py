"""Work that waits for the disk or reads untrusted files, beside a thread that serves requests."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

WAIT_S = 0.0005

T = TypeVar("T")


def apart(work: Callable[[], T]) -> Generator[None, None, T]:
    """Do ``work`` in a thread of its own and return its result; a step waits for less than a millisecond."""
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(work)
        while wait([done], WAIT_S).not_done:
            yield
    return done.result()
