"""Every address is sent what its schema allows, and what it does not: nothing hangs, nothing fails inside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from localspec.http.app import DIALECTS
from tests.http.server import HttpServer
from tests.slow.share import share

ALL = sum(len(dialect.endpoints) for dialect in DIALECTS)
CASES = 80
"""for each address, besides those that cover its schema"""
# What is known and cannot be done is refused by sentences that a schema has no words for.
NOT = "positive_data_acceptance"


@pytest.mark.slow
def test_schemathesis_finds_nothing(echo: HttpServer, tmp_path: Path) -> None:
    done = subprocess.run(
        (
            Path(sys.executable).with_name("schemathesis"),
            *("run", f"{echo.url}/openapi.json", "--url", echo.url),
            *("-H", f"Authorization: Bearer {echo.token}"),
            *("--checks", "all", "--exclude-checks", NOT, "-n", str(share(CASES))),
            *("--phases", "coverage,fuzzing", "--no-color", "--continue-on-failure"),
            *("--request-timeout", "60", "--max-response-time", "60"),
        ),
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert f"Selected: {ALL}/{ALL}" in done.stdout and "unresolvable" not in done.stdout.lower(), done.stdout
    echo.until_idle()
    assert echo.post("/completion", {"prompt": "then word"})["content"]
    assert "Traceback" not in echo.daemon.log()
