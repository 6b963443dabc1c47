from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.conftest import own_home
from tests.daemon.harness import DaemonProcess


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    with own_home() as path:
        yield path


@pytest.fixture
def fresh() -> Iterator[Path]:
    with own_home() as path:
        yield path


@pytest.fixture(scope="module")
def echo() -> Iterator[DaemonProcess]:
    with own_home() as path:
        daemon = DaemonProcess(path)
        yield daemon
        assert daemon.stop() == 0, daemon.log()
