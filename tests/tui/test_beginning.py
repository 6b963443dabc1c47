"""The benchmark of how long a chat takes to begin measures something."""

from __future__ import annotations

import pytest

from assets.bench import beginning


@pytest.mark.slow
def test_a_chat_is_begun_and_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", "")  # it has one of its own
    (found,) = beginning.measure(1)
    assert 0 < found.prompt < found.key and found.prompt < found.model
    assert beginning.table([found]).splitlines()[1].startswith("prompt")
