from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.http.server import HttpServer, opened


@pytest.fixture(scope="module")
def door() -> Iterator[HttpServer]:
    """Behind it is the bundled pair."""
    with opened(real=True) as door:
        yield door


@pytest.fixture(scope="module")
def echo() -> Iterator[HttpServer]:
    """An HTTP server before models that answer as the prompt requests."""
    with opened() as door:
        yield door
