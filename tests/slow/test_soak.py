"""A short soak of the real daemon; `make soak` runs a long one."""

from __future__ import annotations

import pytest

from tests.slow.soak import soak

pytestmark = pytest.mark.slow


def test_nothing_is_lost() -> None:
    found = soak(600, 3)
    assert found.counts["ending stop"] + found.counts["ending length"] > 200
    assert found.counts["ending cancelled"] > 0
