from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.vscode.asking import Asking
from tests.vscode.editor import Editor, editing
from tests.vscode.tap import Tap, tapping
from tests.waiting import until_sync


@pytest.fixture(scope="package")
def tapped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Editor, Tap]]:
    """One VS Code for all tests that need no fresh one, and the wire to its daemon.

    It is closed before tests of something else: the browser's driver has an event loop in this thread.
    """
    root = tmp_path_factory.mktemp("vscode")
    with tapping(root / "home") as tap, editing(root, tap.put_command) as editor:
        editor.start("first.py", "import this\n")
        until_sync(lambda: "Ready" in editor.facts(), "the daemon is there")
        yield editor, tap


@pytest.fixture
def editor(tapped: tuple[Editor, Tap]) -> Editor:
    return tapped[0]


@pytest.fixture
def tap(tapped: tuple[Editor, Tap]) -> Tap:
    return tapped[1]


@pytest.fixture
def asking(editor: Editor) -> Asking:
    return Asking(editor.home)
