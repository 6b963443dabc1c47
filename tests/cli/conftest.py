from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.harness import Cli
from tests.folders import short_folder


@pytest.fixture(scope="module")
def cli() -> Iterator[Cli]:
    """A command whose daemon is stopped when the module's tests are done."""
    with short_folder() as home:
        command = Cli(home)
        yield command
        command("daemon", "stop")
