"""The pictures of the chat are drawn from a real answer."""

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
    """Return the text of a picture, without blanks."""
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
@pytest.mark.parametrize("name", ["assets.screenshots", "assets.pictures.sources"])
def test_wrong_arguments_get_the_usage(name: str) -> None:
    command = [sys.executable, "-m", name, "--nothing"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stderr.startswith("usage: ") and "Traceback" not in done.stderr
