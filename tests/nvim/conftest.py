from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.conftest import shared
from tests.editors.found import NEOVIMS
from tests.nvim.editor import Editor, editing

home = shared


@pytest.fixture(scope="module", params=NEOVIMS)
def running(request: pytest.FixtureRequest, home: Path) -> Iterator[Editor]:
    """One of each version, for all tests of a module that need no fresh one."""
    with editing(request.param, home) as editor:
        yield editor


@pytest.fixture
def editor(running: Editor) -> Editor:
    """As it was at the beginning, but for what the daemon and the memory know."""
    running.keys("<Esc>")
    running.settled()
    running.lua("vim.cmd('silent! only | silent! mapclear! | messages clear')")
    running.lua("vim.o.cmdheight, vim.o.paste = 1, false")
    running.setup()
    return running
