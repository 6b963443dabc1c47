"""The pictures of the chat are drawn from a real answer, and the README's again."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

import pytest

from localspec.models.catalogue import DEFAULT
from tests.hygiene.source import ROOT


def texts(path: Path) -> str:
    found = re.findall(r"<text[^>]*>(.*?)</text>", path.read_text("utf-8"))
    return re.sub(r"\s+", "", html.unescape("".join(found)))


@pytest.mark.slow
def test_they_are_drawn_anew(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "assets.screenshots", str(tmp_path), "--model", "bundled"]
    subprocess.run(command, cwd=ROOT, check=True, timeout=120)
    for name in ("chat-dark.svg", "chat-light.svg"):
        drawn, shown = texts(tmp_path / name), texts(ROOT / "assets" / "pictures" / name)
        assert "returnexp(fmean(map(log,data)))" in drawn and "lookup87%" in drawn
        assert DEFAULT in shown


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
