"""Commands start fast: what is heavy is imported by those that need it only."""

from __future__ import annotations

import subprocess
import sys

import pytest

import localspec
from tests.cli.harness import Cli

MODULES = 420
"""loaded by `localspec run` up to its first byte from a warm daemon; 376 when this was written"""


def loaded(statement: str) -> set[str]:
    done = subprocess.run(
        (sys.executable, "-c", f"{statement}\nimport sys; print(*sys.modules)"),
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.slow
def test_the_number_of_modules_is_pinned() -> None:
    found = loaded("import localspec.cli.main, localspec.cli.run, localspec.client.client")
    assert len(found) <= MODULES, len(found)


def test_version(cli: Cli) -> None:
    done = cli.process("--version")
    assert done.stdout.strip() == f"localspec {localspec.__version__}" and done.returncode == 0
