"""Messages of a real VS Code to the daemon: enough, no more, each once, and nothing of some files."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.vscode.asking import Asking
from tests.vscode.editor import BEFORE, Editor
from tests.vscode.tap import Tap
from tests.waiting import until_sync

pytestmark = pytest.mark.slow

INLINE = "completion/inline"
LINES = [f"line_{i} = {i}  # 😀 e\u0301\n" for i in range(500)]


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


def test_the_lines_around_the_cursor_are_sent_in_whole_blocks(editor: Editor, tap: Tap) -> None:
    editor.open("long.py", "".join(LINES))
    editor.go_to(351, 9)
    since = tap.mark()
    editor.type("x")
    params = tap.asked(since)
    here = LINES[350]
    assert params["prefix"] == "".join(LINES[64:350]) + here[:8] + "x"
    assert params["suffix"] == here[8:] + "".join(LINES[351:415])
    assert params["path"] == str(editor.workspace / "long.py")
    assert (params["language"], params["trigger"], params["max_ms"]) == ("python", "automatic", 5000)


def test_wide_characters_before_the_cursor_are_sent_whole(editor: Editor, tap: Tap) -> None:
    editor.open("emoji.py", "s = '😀e\u0301'; ")
    since = tap.mark()
    editor.type("x")
    assert tap.asked(since)["prefix"] == "s = '😀e\u0301'; x"


def test_pieces_of_other_files_are_sent_with_it(editor: Editor, tap: Tap) -> None:
    editor.open("other.py", "".join(LINES[:100]))
    editor.open("with_other.py", "a = ")
    since = tap.mark()
    editor.type("l")
    newest, *others = tap.asked(since)["extra"]
    assert newest == {"path": str(editor.workspace / "other.py"), "text": "".join(LINES[64:100])}
    assert str(editor.workspace / "with_other.py") not in [file["path"] for file in others]
    assert len(others) < 16


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


def test_what_was_accepted_is_told_once(editor: Editor, tap: Tap) -> None:
    item, _ = invoked(editor, tap, "accepted.py")
    until_sync(lambda: tap.events_of(item) == [("shown", None)], "it was seen")
    since = tap.mark()
    editor.press("Tab")
    tap.asked(since)
    assert tap.events_of(item) == [("shown", None), ("accepted", None)]


def test_what_comes_after_an_accepted_one_was_thought_of_before(
    editor: Editor, tap: Tap, asking: Asking
) -> None:
    editor.open("ahead.py", BEFORE)
    expected = asking.text(editor.workspace / "ahead.py", BEFORE + "hi < 0:")
    editor.type("hi < 0:")
    editor.until_ghost(lambda ghost: ghost == expected, f"this is shown: {expected!r}")
    since = tap.mark()
    editor.press("Tab")
    assert answer(tap, since)["source"] == "cache"


def test_what_was_typed_of_a_suggestion_counts_as_accepted_in_part(editor: Editor, tap: Tap) -> None:
    item, shown = invoked(editor, tap, "typed.py")
    editor.type(shown[:2])
    editor.until_ghost(lambda ghost: ghost == shown[2:], "the rest is shown")
    editor.type("§")
    until_sync(lambda: len(tap.events_of(item)) == 2, "it is told of")
    since = tap.mark()
    editor.type("x")
    tap.asked(since)
    assert tap.events_of(item) == [("shown", None), ("partial", 2)]


def test_what_was_seen_and_not_taken_is_dismissed_once(editor: Editor, tap: Tap) -> None:
    item, _ = invoked(editor, tap, "dismissed.py")
    until_sync(lambda: tap.events_of(item) == [("shown", None)], "it was seen")
    editor.press("Escape")
    since = tap.mark()
    editor.type("§")
    tap.asked(since)
    assert tap.events_of(item) == [("shown", None), ("dismissed", None)]


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


def test_who_asks_for_more_is_asked_for_again_where_something_was_answered_already(
    editor: Editor, tap: Tap
) -> None:
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


def test_an_answer_that_comes_after_its_file_was_closed_is_nobodys(editor: Editor, tap: Tap) -> None:
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
