from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.harness import Cli


@pytest.fixture(scope="module")
def cli() -> Iterator[Cli]:
    """A command whose daemon is stopped when the module's tests are done."""
    home = Path(tempfile.mkdtemp(prefix="ls")).resolve()
    command = Cli(home)
    yield command
    command("daemon", "stop")
    shutil.rmtree(home, ignore_errors=True)  # a daemon that ends takes its own files away meanwhile
