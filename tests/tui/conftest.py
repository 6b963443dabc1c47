from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from localspec.client import Client, connect
from tests.client.conftest import own_home
from tests.daemon.harness import write_config
from tests.tui.harness import Player, playing
from tests.tui.showing import conversation, showing


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A home, and so a daemon with the bundled pair, for all tests of a module. Its context is so long that
    an answer without an end takes half a minute on a fast machine."""
    with own_home() as path:
        write_config(path, sections="[engine]\nn_ctx = 16384\n")
        yield path


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the clipboard of the user who runs the tests as it is."""
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.1 50000 192.0.2.2 22")


@pytest.fixture
def still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home for what is shown without a daemon; the terminal has all colours."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return tmp_path


@pytest.fixture
def player(home: Path) -> AbstractAsyncContextManager[Player]:
    """A chat with the bundled pair."""
    return playing()


@pytest.fixture
def other(home: Path) -> AbstractAsyncContextManager[Client]:
    """Another program with the same daemon."""

    @asynccontextmanager
    async def connected() -> AsyncIterator[Client]:
        async with await connect() as client:
            yield client

    return connected()


@pytest.fixture
def viewer(still: Path) -> AbstractAsyncContextManager[Player]:
    """A fixed conversation, without a daemon."""
    return showing(conversation())
