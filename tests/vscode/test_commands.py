"""Commands and the status item of a real VS Code."""

from __future__ import annotations

import re
import shutil

import pytest

from tests.memory.hostile_repository import repository
from tests.vscode.asking import Asking
from tests.vscode.editor import BEFORE, Editor
from tests.vscode.tap import Tap
from tests.waiting import until_sync

pytestmark = pytest.mark.slow


def test_switched_off_it_asks_nothing_until_it_is_switched_on(editor: Editor, tap: Tap) -> None:
    editor.open("off.py", BEFORE)
    editor.command("localspec: Toggle Completions")
    until_sync(lambda: "Completions are switched off" in editor.facts(), "it is off")
    since = tap.mark()
    editor.focus("off.py")
    editor.type("lo")
    editor.press("Alt+Backslash")
    editor.command("localspec: Toggle Completions")
    until_sync(lambda: "switched off" not in editor.facts(), "it is on")
    editor.focus("off.py")
    editor.type(" ")
    assert tap.asked(since)["prefix"] == BEFORE + "lo "


def test_the_status_item_tells_what_speculation_does(editor: Editor, tap: Tap, asking: Asking) -> None:
    editor.open("status.py", BEFORE)
    answered = editor.completions()
    editor.press("Alt+Backslash")
    until_sync(lambda: editor.completions() > answered, "it is answered")
    facts = editor.facts().split("; ")
    assert facts[:2] == ["localspec: Ready.", "Model: stdlib-6m"]
    assert any(fact.startswith("Time saved: ") for fact in facts)
    assert any(fact.startswith(("Drafts accepted: ", "Speculation is off: ")) for fact in facts)
    assert editor.last().source == "model" and 0 < editor.last().daemon_ms < editor.last().editor_ms


def test_the_statistics_say_the_same_and_what_can_be_done(editor: Editor) -> None:
    editor.command("localspec: Show Statistics")
    editor.page.wait_for_selector('.quick-input-list .monaco-list-row[aria-label*="Restart Daemon"]')
    rows = editor.page.locator(".quick-input-list .monaco-list-row").all_inner_texts()
    facts = editor.facts().removeprefix("localspec: ").split("; ")
    assert [row.strip() for row in rows[: len(facts)]] == facts
    editor.press("Escape")


def test_a_model_that_was_chosen_is_asked(editor: Editor, tap: Tap) -> None:
    editor.command("localspec: Choose Model")
    editor.choose("stdlib-6m")
    editor.page.wait_for_selector("text=localspec: completions come from stdlib-6m")
    editor.open("chosen.py", BEFORE)
    since = tap.mark()
    editor.type("h")
    assert tap.asked(since)["options"] == {"model": "stdlib-6m"}
    editor.command("localspec: Choose Model")
    editor.choose("As configured")
    editor.page.wait_for_selector("text=come from the model of localspec's own settings")
    since = tap.mark()
    editor.focus("chosen.py")
    editor.type("i")
    assert "options" not in tap.asked(since)


def test_a_workspace_is_learnt_and_forgotten(editor: Editor, tap: Tap) -> None:
    repository(editor.workspace)
    editor.write("learnt/module.py", "def learnt():\n    return 'what stands in the workspace'\n")
    since = tap.mark()
    editor.command("localspec: Prime Workspace")
    editor.page.wait_for_selector("text=localspec: learnt")
    assert tap.sent("memory/prime", since) == [{"paths": [str(editor.workspace)]}]
    editor.command("localspec: Forget Workspace")
    editor.page.get_by_role("button", name="Forget", exact=True).click()
    editor.page.wait_for_selector("text=localspec: forgot")
    assert tap.sent("memory/forget", since) == [{"workspace": str(editor.workspace)}]
    shutil.rmtree(editor.workspace / ".git")
    editor.command("Notifications: Clear All Notifications")


def test_what_is_forgotten_is_the_repository_around_the_folder_and_asked_about_by_its_name(
    editor: Editor, tap: Tap
) -> None:
    above = editor.workspace.parent
    (above / ".git").mkdir()
    since = tap.mark()
    editor.command("localspec: Forget Workspace")
    editor.page.wait_for_selector(f"text=Forget all that localspec has learnt in {above}?")
    editor.page.get_by_role("button", name="Forget", exact=True).click()
    told = re.compile(f"localspec: forgot .* of {re.escape(str(above))}\\.")
    until_sync(lambda: any(map(told.search, editor.notices())), "it is told")
    assert tap.sent("memory/forget", since) == [{"workspace": str(above)}]
    (above / ".git").rmdir()
    editor.command("Notifications: Clear All Notifications")


def test_a_setting_of_a_wrong_kind_is_told_of_once_and_counts_as_not_set(editor: Editor, tap: Tap) -> None:
    settings = editor.write(".vscode/settings.json", '{"localspec.model": 5}')
    until_sync(lambda: editor.notices() != [], "it is told")
    editor.open("wrong.py", BEFORE)
    since = tap.mark()
    editor.type("h")
    assert "options" not in tap.asked(since)
    (notice,) = editor.notices()
    assert "The setting localspec.model is not of type string: its default is used." in notice
    settings.unlink()
    editor.command("Notifications: Clear All Notifications")
