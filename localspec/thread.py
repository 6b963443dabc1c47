"""Blocking work beside an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def on_a_thread(work: Callable[[], T]) -> T:
    """Run a blocking function on a thread; unlike :func:`asyncio.to_thread`, the program's end does not wait
    for it."""
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()  # so that a cancelled wait leaves its result a place

    def run() -> None:
        try:
            done.set_result(work())
        except Exception as error:  # of any kind: it is raised where the result is awaited
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(done)
