"""A real VS Code: its commands and status item, and the life of the language server."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.daemon.harness import gone
from tests.memory.hostile_repository import repository
from tests.vscode.asking import Asking
from tests.vscode.editor import BEFORE, Editor, command_of, put_command, servers
from tests.waiting import until_sync

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("file", "command"),
    [("off.py", "Toggle Completions"), ("notes.txt", "Toggle Completions for This Language")],
)
def test_switched_off_it_completes_nothing_until_it_is_switched_on(
    editor: Editor, asking: Asking, file: str, command: str
) -> None:
    editor.open(file, BEFORE)
    editor.command(f"localspec: {command}")
    until_sync(lambda: editor.facts() == "localspec: off", "it is off")
    answered = asking.completions()
    editor.focus(file)
    editor.type("lo")
    editor.press("Alt+Backslash")
    editor.command(f"localspec: {command}")
    until_sync(lambda: editor.facts() != "localspec: off", "it is on")
    assert asking.completions() == answered
    editor.focus(file)
    editor.press("Alt+Backslash")
    editor.until_ghost()


@pytest.mark.parametrize("secret", [".env.local", "id_rsa"])
def test_completions_are_off_in_files_of_secrets(editor: Editor, asking: Asking, secret: str) -> None:
    answered = asking.completions()
    editor.open(secret, "TOKEN=hunter2\n")
    until_sync(lambda: editor.facts() == "localspec: off", "it is off here")
    editor.type("PASSWORD=swordfish")
    editor.press("Alt+Backslash")
    editor.saved(secret)
    editor.open("beside.py", "a = ")
    until_sync(lambda: editor.facts() != "localspec: off", "it is on there")
    assert asking.completions() == answered


def test_a_model_that_was_chosen_is_a_setting(editor: Editor) -> None:
    def model() -> object:
        settings = json.loads((editor.root / "data" / "User" / "settings.json").read_text())
        return settings.get("localspec.model")

    editor.command("localspec: Choose Model")
    editor.page.wait_for_selector("text=Which model should write completions?")
    editor.choose("stdlib-6m")
    editor.page.wait_for_selector("text=Completions now come from stdlib-6m")
    until_sync(lambda: model() == "stdlib-6m", "it is kept")
    editor.open("chosen.py", BEFORE)
    editor.press("Alt+Backslash")
    editor.until_ghost()
    assert editor.facts().startswith("localspec: stdlib-6m · ")
    editor.command("localspec: Show Status")
    editor.page.wait_for_selector('.quick-input-list .monaco-list-row[aria-label*="stdlib-6m"]')
    editor.choose("Choose Model")
    editor.page.wait_for_selector("text=Which model should write completions?")
    editor.choose("as configured")
    until_sync(lambda: model() == "", "it is kept")


def test_a_workspace_is_learnt_and_forgotten(editor: Editor) -> None:
    repository(editor.workspace)
    editor.write("learnt/module.py", "def learnt():\n    return 'what stands in the workspace'\n")
    editor.command("localspec: Prime Workspace")
    editor.page.wait_for_selector("text=Learnt")
    editor.command("localspec: Forget Workspace")
    editor.page.wait_for_selector("text=Forget all that localspec has learnt")
    editor.choose("Forget")
    editor.page.wait_for_selector("text=/Forgot [1-9]/")
    shutil.rmtree(editor.workspace / ".git")
    editor.command("Notifications: Clear All Notifications")


def test_where_the_cursor_comes_to_rest_the_model_reads_ahead(editor: Editor, asking: Asking) -> None:
    editor.open("warm.py", BEFORE)
    warmed = asking.warmed()
    editor.type("l")
    until_sync(lambda: asking.warmed() > warmed, "it reads ahead")


def test_the_daemon_is_restarted_with_the_server(editor: Editor, asking: Asking) -> None:
    editor.open("restarted.py", BEFORE)
    pid, (server,) = asking.found().pid, servers(editor.root)
    editor.command("localspec: Restart Daemon")
    editor.page.wait_for_selector("text=The daemon has started again")
    assert asking.found().pid != pid
    until_sync(lambda: gone(server) and len(servers(editor.root)) == 1, "the server is another one")
    editor.focus("restarted.py")
    editor.press("Alt+Backslash")
    editor.until_ghost()


def test_a_server_that_was_killed_is_started_again(editor: Editor) -> None:
    editor.open("killed.py", BEFORE)
    (server,) = servers(editor.root)
    server.kill()
    until_sync(lambda: gone(server) and len(servers(editor.root)) == 1, "another one has started")
    editor.press("Alt+Backslash")
    editor.until_ghost()


def test_a_missing_command_is_reported_once_and_found_once_it_is_there(editor: Editor) -> None:
    editor.command("Notifications: Clear All Notifications")
    command_of(editor.root).unlink()
    editor.start("missing.py", BEFORE)
    problem = "The command localspec was not found. Install localspec"
    until_sync(lambda: problem in editor.facts(), "it is said")
    editor.type("lo")
    (notice,) = editor.notices()
    assert problem in notice
    put_command(editor.root)
    editor.press("Alt+Backslash")
    editor.until_ghost()
    editor.command("Notifications: Clear All Notifications")


def test_a_window_that_is_gone_leaves_nothing_behind(editor: Editor, asking: Asking) -> None:
    daemon, (before,) = asking.found().pid, servers(editor.root)
    editor.start("reloaded.py", BEFORE)
    until_sync(lambda: gone(before) and len(servers(editor.root)) == 1, "the old window's server ends")
    assert asking.found().pid == daemon
    editor.press("Alt+Backslash")
    editor.until_ghost()
