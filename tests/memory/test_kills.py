"""Forty kills; ten thousand are in tests/slow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the writers are forked")


def test_a_killed_writer_leaves_a_sound_table(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.memory.killing", str(tmp_path), "40", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    kills, found, sizes, _ = done.stdout.split()
    assert int(kills) == 40 and int(found) > 40 and int(sizes) > 1
