"""A real VS Code: its messages to the daemon, its commands and status item, and what outlives what."""

from __future__ import annotations

import json
import shutil
import time
from typing import Any

import psutil
import pytest

from tests.daemon.harness import gone
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


INLINE = "completion/inline"


def invoked(editor: Editor, tap: Tap, name: str) -> tuple[str, str]:
    """An item that is shown in a new file, and its text."""
    editor.open(name, BEFORE)
    since = tap.mark()
    editor.press("Alt+Backslash")
    (item,) = answer(tap, since)["items"]
    editor.until_ghost(lambda ghost: ghost == item["text"], f"this is shown: {item['text']!r}")
    return item["id"], item["text"]


def answer(tap: Tap, since: int) -> dict[str, Any]:
    """The daemon's answer to the first completion."""
    asked = tap.next_of(INLINE, since)["id"]

    def answers() -> list[dict[str, Any]]:
        return [
            each["result"] for who, each in tap.frames[since:] if who == "daemon" and each.get("id") == asked
        ]

    until_sync(lambda: bool(answers()), "it is answered")
    return answers()[0]


@pytest.mark.parametrize(("secret", "other"), [(".env.local", "after_env.py"), ("id_rsa", "after_key.py")])
def test_nothing_of_a_file_of_secrets_is_ever_sent(editor: Editor, tap: Tap, secret: str, other: str) -> None:
    editor.open(secret, "TOKEN=hunter2\n")
    editor.type("PASSWORD=swordfish")
    until_sync(lambda: "nothing of it is sent" in editor.facts(), "it is excluded")
    editor.press("Alt+Backslash")
    editor.saved(secret)
    editor.open(other, "a = ")
    since = tap.mark()
    editor.type("l")
    tap.asked(since)
    everything = json.dumps(tap.frames)
    assert secret not in everything and "hunter2" not in everything and "sword" not in everything


def test_a_language_is_excluded_and_let_in_again(editor: Editor, tap: Tap) -> None:
    editor.open("closed.txt", "# closed\n")
    editor.press("Control+Alt+w")
    editor.open("notes.txt", "# Notes\n")
    editor.command("localspec: Toggle Completions for This Language")
    until_sync(lambda: "nothing of it is sent" in editor.facts(), "it is excluded")
    since = tap.mark()
    editor.open("beside.py", BEFORE)
    editor.type("h")
    assert ".txt" not in json.dumps(tap.asked(since))
    editor.open("notes.txt", "# Notes\n")
    since = tap.mark()
    editor.focus("notes.txt")
    editor.type("privy ")
    editor.command("localspec: Toggle Completions for This Language")
    until_sync(lambda: "nothing of it is sent" not in editor.facts(), "it is let in")
    editor.focus("notes.txt")
    editor.type("x")
    assert tap.asked(since)["prefix"] == "# Notes\nprivy x"


def test_typing_on_cancels_what_is_asked(editor: Editor, tap: Tap) -> None:
    editor.open("cancelled.py", BEFORE)
    since = tap.mark()
    with tap.silence():
        editor.type("h")
        first = tap.next_of(INLINE, since)["id"]
        editor.type("i")
        cancelled = tap.next_of("$/cancelRequest", since)
        assert cancelled["params"] == {"id": first}
        until_sync(lambda: len(tap.frames_of(INLINE, since)) == 2, "it is asked anew")
    assert [each["prefix"] for each in tap.sent(INLINE, since)] == [BEFORE + "h", BEFORE + "hi"]


def test_more_is_requested_again_where_one_answer_is_known(editor: Editor, tap: Tap) -> None:
    editor.open("again.py", BEFORE)
    since = tap.mark()
    editor.type("l")
    answer(tap, since)
    for _ in range(2):
        since = tap.mark()
        editor.press("Alt+Backslash")
        params = tap.asked(since)
        assert (params["prefix"], params["trigger"]) == (BEFORE + "l", "invoked")
        (item,) = answer(tap, since)["items"]
        editor.until_ghost(lambda ghost, text=item["text"]: ghost == text, "it is shown")  # type: ignore[misc]


def test_a_lost_connection_is_made_again_and_what_waited_is_asked_anew(
    editor: Editor, tap: Tap, asking: Asking
) -> None:
    editor.open("lost.py", BEFORE)
    expected = asking.text(editor.workspace / "lost.py", BEFORE, trigger="invoked")
    since = tap.mark()
    with tap.silence():
        editor.press("Alt+Backslash")
        tap.next_of(INLINE, since)
        tap.cut()
    editor.until_ghost(lambda ghost: ghost == expected, f"this is shown: {expected!r}")
    assert len(tap.frames_of("initialize", since)) == 1
    assert len(tap.frames_of(INLINE, since)) == 2
    assert editor.notices() == []


def test_an_answer_that_comes_after_its_file_was_closed_is_dropped(editor: Editor, tap: Tap) -> None:
    editor.open("closed_early.py", BEFORE)
    since = tap.mark()
    with tap.silence():
        editor.press("Alt+Backslash")
        tap.next_of(INLINE, since)
        editor.press("Control+Alt+w")
        editor.page.wait_for_selector('.tab[data-resource-name="closed_early.py"]', state="detached")
    answer(tap, since)
    _, shown = invoked(editor, tap, "opened_late.py")
    assert shown != "" and editor.notices() == []


def test_where_the_cursor_comes_to_rest_the_model_reads_ahead(editor: Editor, tap: Tap) -> None:
    editor.open("warmed.py", "a = ")
    since = tap.mark()
    editor.type("l")
    tap.asked(since)
    editor.open("warm.py", BEFORE)
    warmed = tap.next_of("completion/warm", since)["params"]
    assert (warmed["path"], warmed["prefix"]) == (str(editor.workspace / "warm.py"), BEFORE)


BREATH_S = 1.0
"""pause before the next key"""


def kill(process: psutil.Process) -> None:
    process.kill()
    until_sync(lambda: gone(process), "it is dead")


def test_a_missing_command_is_reported_once_and_found_once_it_is_there(
    editor: Editor, tap: Tap, asking: Asking
) -> None:
    editor.open("missing.py", BEFORE)
    command = editor.workspace.parent / "user" / ".local" / "bin" / "localspec"
    command.unlink()
    kill(psutil.Process(asking.found().pid))
    until_sync(lambda: "Not connected" in editor.facts(), "the connection is lost")
    for letter in "lo <":
        editor.type(letter)
        until_sync(lambda: "was not found" in editor.facts(), "it is reported")
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
