"""The benchmark's keystrokes are real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lsp.measure import measure
from tests.waiting import run


@pytest.mark.slow
def test_an_answer_takes_longer_here_than_in_the_daemon(fresh: Path) -> None:
    strokes = run(measure(3))
    assert len(strokes) == 3
    assert all(stroke.whole > stroke.daemon > 0 for stroke in strokes)
