from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.conftest import own_home


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A home, and so a daemon with the bundled pair, for all tests of a module."""
    with own_home() as path:
        yield path
