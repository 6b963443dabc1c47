"""The rough table of a fresh installation, the inflation of the models included."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.cli.harness import Cli

LIMIT_S = 90.0
CORES = 2


@pytest.mark.slow
def test_a_quick_table_takes_a_minute_and_a_half(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    started = time.monotonic()
    done = cli("bench", "--quick", "--json")
    seconds = time.monotonic() - started
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert {figure["workload"] for figure in results["figures"]} == {"edit-short", "chat"}
    assert {model["role"] for model in results["models"]} == {"target", "draft 0.1"}
    assert [figure for figure in results["figures"] if figure["diverged"]] == []
    if results["machine"]["cores"] >= CORES:
        assert seconds <= LIMIT_S
