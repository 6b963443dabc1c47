"""The measurement itself: each key is counted, and no suggestion is drawn before the daemon has it."""

from __future__ import annotations

import pytest

from tests.editors.found import NEOVIMS
from tests.nvim.measure import measure

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("version", NEOVIMS)
def test_each_key_is_measured(version: str) -> None:
    times = measure(version, 4, pause_s=0.0)
    assert len(times) == 4
    assert all(0 < in_the_daemon <= until_drawn for until_drawn, in_the_daemon in times), times
