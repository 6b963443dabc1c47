from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.harness import REAL_DAEMON, DaemonProcess, Raw, raw
from tests.folders import short_folder

StartDaemon = Callable[..., DaemonProcess]


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    """A daemon that the tests of a module share."""
    with short_folder() as home:
        daemon = DaemonProcess(home, max_frame=65536)
        yield daemon
        assert daemon.stop() == 0, daemon.log()


@pytest.fixture
def client(daemon: DaemonProcess) -> AbstractAsyncContextManager[Raw]:
    """A connection to the daemon of the module."""
    return raw(daemon)


@pytest.fixture
def other(daemon: DaemonProcess) -> AbstractAsyncContextManager[Raw]:
    """A second connection to it."""
    return raw(daemon)


@pytest.fixture
def home() -> Iterator[Path]:
    with short_folder() as path:
        yield path


@pytest.fixture
def start(home: Path) -> Iterator[StartDaemon]:
    """Start daemons in ``home``; those that still run at the end are stopped."""
    started: list[DaemonProcess] = []

    def start(**config: Any) -> DaemonProcess:
        started.append(DaemonProcess(home, **config))
        return started[-1]

    yield start
    for daemon in started:
        if daemon.process.poll() is None:
            assert daemon.stop() == 0, daemon.log()


@pytest.fixture
def own(start: StartDaemon) -> DaemonProcess:
    """A daemon of one test."""
    return start()


@pytest.fixture
def alone(own: DaemonProcess) -> AbstractAsyncContextManager[Raw]:
    """The only connection to it."""
    return raw(own)


@pytest.fixture
def real(home: Path, start: StartDaemon) -> DaemonProcess:
    """A daemon with workers that run models."""
    return start(command=REAL_DAEMON)
