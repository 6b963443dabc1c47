"""The number of times that one answer reads its model's file to identify it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from localspec.models.bundled import bundled_model

MOST = 6
"""reads of the header, looks for a format, and resolutions of the path"""


@pytest.mark.slow
def test_one_answer_identifies_its_model_a_few_times(tmp_path: Path) -> None:
    path = Path(shutil.copy(bundled_model("stdlib-6m"), tmp_path / "m.gguf"))
    home = {"HOME": str(tmp_path), "LOCALSPEC_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-m", "assets.bench.identity_calls", str(path)],
        env=os.environ | home,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    counts = json.loads(done.stdout.splitlines()[-1])
    opened_to_load = {"_tail"}
    headers = sum(n for who, n in counts["opens"].items() if who not in opened_to_load)
    assert opened_to_load <= counts["opens"].keys() and headers >= 1  # it sees what is opened
    assert headers + counts["formats"] + counts["resolutions"] <= MOST, counts
