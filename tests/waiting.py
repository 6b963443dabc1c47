"""Every wait of the tests: for an event or a condition, never for a time to pass."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

DEADLINE_S = 30.0
"""generous: it is reached only when something is broken"""
POLL_S = 0.01


def run(test: Coroutine[Any, Any, T]) -> T:
    """Run an asynchronous test, with an end to it."""
    return asyncio.run(asyncio.wait_for(test, 4 * DEADLINE_S))


class Loop:
    """An event loop for several tests, one after the other."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()

    def run(self, test: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(asyncio.wait_for(test, 4 * DEADLINE_S))


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an asynchronous test.

    Where a fixture's value is an asynchronous context, the test is run inside it and gets what it yields;
    where one is a :class:`Loop`, the test is run in that.
    """
    if not inspect.iscoroutinefunction(pyfuncitem.function):
        return None
    values = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def test() -> None:
        async with AsyncExitStack() as contexts:
            for name, value in values.items():
                if isinstance(value, AbstractAsyncContextManager):
                    values[name] = await contexts.enter_async_context(value)
            await pyfuncitem.function(**values)

    own = [value.run for value in values.values() if isinstance(value, Loop)]
    (own or [run])[0](test())
    return True


async def soon(awaitable: Awaitable[T]) -> T:
    """The value of ``awaitable``, which must come within the deadline."""
    return await asyncio.wait_for(awaitable, DEADLINE_S)


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited in vain until {what}")
        await asyncio.sleep(POLL_S)


def until_sync(condition: Callable[[], bool], what: str, timeout_s: float = DEADLINE_S) -> None:
    """As :func:`until`, without an event loop."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited in vain until {what}")
        time.sleep(POLL_S)
