"""Suggestions in a real Neovim: drawn, accepted, dropped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.editors.found import NEOVIMS
from tests.nvim.asked import MULTI, SINGLE, completion
from tests.nvim.editor import editing

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("version", NEOVIMS)]


def shown(text: str) -> list[str]:
    """The rows in which a suggestion is drawn."""
    return [line for line in text.split("\n") if line.strip()]


@pytest.mark.parametrize("prefix", [SINGLE, MULTI], ids=["single", "multi"])
def test_what_the_daemon_says_is_drawn_accepted_and_undone(
    version: str, home: Path, tmp_path: Path, prefix: str
) -> None:
    file = tmp_path / "a.py"
    file.write_text(prefix[:-1] + "\n")
    with editing(version, home, file) as editor:
        editor.keys("GA")
        editor.type(prefix[-1])
        expected = completion(prefix)
        assert editor.until_ghost() == shown(expected)
        assert editor.text == prefix, "nothing is in the buffer yet"
        editor.keys("<Tab>")
        editor.until(lambda: editor.text == prefix + expected, "it is accepted")
        lines = (prefix + expected).split("\n")
        assert editor.cursor == (len(lines), len(lines[-1]))
        editor.keys("<Esc>u")
        editor.until(lambda: editor.text == prefix, "what was accepted is one step of undo")
