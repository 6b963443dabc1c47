from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.conftest import own_home
from tests.daemon.harness import DaemonProcess


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A home, and so a daemon with the bundled pair, for all tests of a module."""
    with own_home() as path:
        yield path


@pytest.fixture
def fresh() -> Iterator[Path]:
    """A home in which no daemon runs yet."""
    with own_home() as path:
        yield path


@pytest.fixture(scope="module")
def echo() -> Iterator[DaemonProcess]:
    """A real daemon whose models are echoes: the text sets their answers and their time."""
    with own_home() as path:
        daemon = DaemonProcess(path)
        yield daemon
        assert daemon.stop() == 0, daemon.log()
