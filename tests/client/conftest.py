from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from filelock import FileLock

from localspec.client import discovery
from tests.daemon.harness import write_config
from tests.waiting import DEADLINE_S


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """This process's own home; a daemon that a test leaves running, in it or below it, is stopped."""
    path = Path(tempfile.mkdtemp(prefix="ls")).resolve()
    monkeypatch.setenv("LOCALSPEC_HOME", str(path))
    write_config(path)
    yield path
    if (found := discovery.find()) is not None and psutil.pid_exists(found.pid):
        psutil.Process(found.pid).terminate()
    for lock in path.rglob("daemon.lock"):
        with FileLock(lock, timeout=DEADLINE_S):
            pass  # a daemon holds it to its very end
    shutil.rmtree(path)
