from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.vscode.asking import Asking
from tests.vscode.editor import Editor, editing
from tests.waiting import until_sync


@pytest.fixture(scope="package")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    """One VS Code for all tests. It is closed before tests of something else: the browser's driver has an
    event loop in this thread."""
    with editing(tmp_path_factory.mktemp("vscode")) as editor:
        editor.start("first.py", "import this\n")
        until_sync((editor.home / "runtime" / "daemon.json").exists, "the daemon is there")
        yield editor


@pytest.fixture
def asking(editor: Editor) -> Asking:
    return Asking(editor.home)
