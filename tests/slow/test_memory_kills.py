"""Thousands of writers of the n-gram memory killed at random moments, none leaves anything unsound."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.slow.share import share

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="the writers are forked")]

KILLS = share(10_000)


def test_killed_writers(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.memory.killing", str(tmp_path), str(KILLS), "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    kills, found, _ = done.stdout.split()
    assert int(kills) == KILLS and int(found) > KILLS
