from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.harness import DaemonProcess, Raw, raw

StartDaemon = Callable[..., DaemonProcess]


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    """A daemon that the tests of a module share."""
    home = Path(tempfile.mkdtemp(prefix="ls")).resolve()
    daemon = DaemonProcess(home, max_frame=65536)
    yield daemon
    assert daemon.stop() == 0, daemon.log()
    shutil.rmtree(home, ignore_errors=True)


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
    """A home whose path is short enough for a Unix socket."""
    path = Path(tempfile.mkdtemp(prefix="ls")).resolve()
    yield path
    shutil.rmtree(path, ignore_errors=True)


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
