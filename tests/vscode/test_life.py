"""A real VS Code on a machine without localspec, and processes left after its end."""

from __future__ import annotations

import time

import psutil
import pytest

from tests.vscode.asking import Asking
from tests.vscode.editor import Editor
from tests.vscode.tap import Tap
from tests.waiting import until_sync

pytestmark = pytest.mark.slow

BEFORE = "def bisect(a, x, lo=0, hi=None):\n    if lo < 0:\n        raise ValueError('lo must be')\n    if "
BREATH_S = 1.0
"""pause before the next key"""


def kill(process: psutil.Process) -> None:
    process.kill()
    until_sync(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, "it is dead")


def test_a_missing_command_is_told_once_and_found_once_it_is_there(
    editor: Editor, tap: Tap, asking: Asking
) -> None:
    editor.open("missing.py", BEFORE)
    command = editor.workspace.parent / "user" / ".local" / "bin" / "localspec"
    command.unlink()
    kill(psutil.Process(asking.found().pid))
    until_sync(lambda: "Not connected" in editor.facts(), "the connection is lost")
    for letter in "lo <":
        editor.type(letter)
        until_sync(lambda: "was not found" in editor.facts(), "it is told")
    assert "Install localspec" in editor.facts()
    tap.put_command(command.parent)

    pressed = 0.0

    def is_found() -> bool:
        nonlocal pressed
        facts = editor.facts()
        # It may have been looked for before it was there. A key that is pressed again within the 50 ms which
        # VS Code waits would take the one before it back, and so on for ever.
        if "was not found" in facts and time.monotonic() - pressed > BREATH_S:
            pressed = time.monotonic()
            editor.press("Alt+Backslash")
        return "Ready" in facts

    until_sync(is_found, "it was found")
    editor.until_ghost()
    (notice,) = editor.notices()
    assert "The command localspec was not found. Install localspec" in notice
    editor.command("Notifications: Clear All Notifications")


def test_what_was_typed_while_the_daemon_started_is_asked_once(
    editor: Editor, tap: Tap, asking: Asking
) -> None:
    editor.open("starting.py", BEFORE)
    kill(psutil.Process(asking.found().pid))
    until_sync(lambda: "Not connected" in editor.facts(), "the connection is lost")
    since = tap.mark()
    editor.type("l")
    until_sync(lambda: "Connecting to the daemon" in editor.facts(), "the daemon is being started")
    editor.type("o")
    first = tap.next_of("completion/inline", since)["params"]
    assert first["prefix"] == BEFORE + "lo"


def test_a_window_that_is_gone_leaves_nothing_behind(editor: Editor, tap: Tap, asking: Asking) -> None:
    daemon = asking.found().pid
    assert len(tap.editors) == 1
    (before,) = tap.editors
    editor.start("reloaded.py", BEFORE)
    until_sync(lambda: "Ready" in editor.facts(), "the daemon is there")
    until_sync(
        lambda: len(tap.editors) == 1 and before not in tap.editors, "the old window's connection ends"
    )
    assert asking.found().pid == daemon
    editor.press("Alt+Backslash")
    editor.until_ghost()
