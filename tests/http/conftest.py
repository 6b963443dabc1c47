from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.http.door import Door, opened


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    """Behind it is the bundled pair."""
    with opened(real=True) as door:
        yield door


@pytest.fixture(scope="module")
def echo() -> Iterator[Door]:
    """Behind it are models that answer what the prompt says."""
    with opened() as door:
        yield door
