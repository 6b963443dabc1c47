from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.conftest import home as home_of_a_test
from tests.client.conftest import own_home, shared
from tests.daemon.harness import DaemonProcess

home, fresh = shared, home_of_a_test


@pytest.fixture(scope="module")
def echo() -> Iterator[DaemonProcess]:
    with own_home() as path:
        daemon = DaemonProcess(path)
        yield daemon
        assert daemon.stop() == 0, daemon.log()
