from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from localspec.client import discovery
from tests.daemon.harness import gone, write_config
from tests.waiting import until_sync


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """This process's own home; a daemon that a test leaves running in it is stopped."""
    path = Path(tempfile.mkdtemp(prefix="ls")).resolve()
    monkeypatch.setenv("LOCALSPEC_HOME", str(path))
    write_config(path)
    yield path
    if (found := discovery.find()) is not None and psutil.pid_exists(found.pid):
        process = psutil.Process(found.pid)
        process.terminate()
        until_sync(lambda: gone(process), "the daemon has stopped")
    shutil.rmtree(path)
