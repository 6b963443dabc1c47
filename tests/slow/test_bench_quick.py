"""The rough table of a fresh installation, the inflation of the models included."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.harness import Cli
from tests.waiting import DEADLINE_S


@pytest.mark.slow
def test_a_quick_table_is_whole(tmp_path: Path) -> None:
    """Its duration is not tested: other tests run beside it."""
    cli = Cli(tmp_path)
    done = cli.process("bench", "--quick", "--json", timeout=40 * DEADLINE_S)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert {figure["workload"] for figure in results["figures"]} == {"edit-short", "chat"}
    assert {model["role"] for model in results["models"]} == {"target", "draft 0.1"}
    assert [figure for figure in results["figures"] if figure["diverged"]] == []
    assert results["duration_s"] > 0
