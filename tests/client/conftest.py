from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path

import psutil
import pytest
from filelock import FileLock

from localspec.client import Client, Stream, connect, discovery
from localspec.protocol.requests import Result
from tests.daemon.harness import ECHO_DAEMON, write_config
from tests.folders import short_folder
from tests.waiting import DEADLINE_S


@contextmanager
def own_home() -> Iterator[Path]:
    """This process's own home; a daemon that is left running, in it or below it, is stopped."""
    with short_folder() as path:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LOCALSPEC_HOME", str(path))
            write_config(path)
            try:
                yield path
            finally:
                if (found := discovery.find()) is not None and psutil.pid_exists(found.pid):
                    psutil.Process(found.pid).terminate()
        for lock in path.rglob("daemon.lock"):
            with FileLock(lock, timeout=DEADLINE_S):
                pass  # a daemon holds it to its very end


async def echo() -> Client:
    """A client of the home's daemon, with echo workers."""
    return await connect(command=ECHO_DAEMON)


async def begun(stream: Stream[Result]) -> Stream[Result]:
    """The stream, once its first text has come."""
    async for _ in stream:
        return stream
    raise AssertionError("it ended without a text")


@asynccontextmanager
async def connected() -> AsyncIterator[Client]:
    async with await echo() as client:
        yield client


@pytest.fixture
def client(request: pytest.FixtureRequest) -> AbstractAsyncContextManager[Client]:
    """A client of the daemon of the home that the test has."""
    request.getfixturevalue("shared" if "shared" in request.fixturenames else "home")
    return connected()


@pytest.fixture
def home() -> Iterator[Path]:
    with own_home() as path:
        yield path


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    """A home, and so a daemon, for all tests of a module that need no fresh one."""
    with own_home() as path:
        yield path
