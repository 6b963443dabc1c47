"""The README's picture can be drawn again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
def test_the_picture_of_the_sources_is_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "sources.svg"
    script = ROOT / "assets" / "pictures" / "sources.py"
    done = subprocess.run(
        (sys.executable, script, picture, "--model", "bundled"), capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    drawn, shown = picture.read_text(), (ROOT / "assets" / "pictures" / "sources.svg").read_text()
    for text in (drawn, shown):
        assert text.startswith("<svg") and "copied&#160;by&#160;prompt&#160;lookup" in text
        assert "&#160;tokens&#160;per&#160;round" in text
