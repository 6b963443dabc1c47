"""Ghost text in a real VS Code: what the daemon answers is drawn, taken, typed along and dismissed."""

from __future__ import annotations

import pytest

from tests.vscode.asking import Asking
from tests.vscode.editor import BEFORE, Editor
from tests.waiting import until_sync

pytestmark = pytest.mark.slow

TYPED = "hi < 0:"
WIDE = ("s = '😀é\u0301'\r\nif lo < 0:\r\n    lo = 0\r\nif ", "\tif '漢字' < '😀':\r\n\t\tif ")


def invoked(editor: Editor, asking: Asking, name: str, before: str = BEFORE) -> str:
    """Request a suggestion in a new file and return it; its lines end with \\n on the screen."""
    editor.open(name, before)
    expected = asking.text(editor.workspace / name, before, trigger="invoked").replace("\r\n", "\n")
    editor.press("Alt+Backslash")
    return editor.until_ghost(lambda ghost: ghost == expected, f"this is shown: {expected!r}")


def test_tab_puts_into_the_file_what_the_daemon_answers(editor: Editor, asking: Asking) -> None:
    editor.open("tab.py", BEFORE)
    expected = asking.text(editor.workspace / "tab.py", BEFORE + TYPED)
    editor.type(TYPED)
    editor.until_ghost(lambda ghost: ghost == expected, f"this is shown: {expected!r}")
    answered, accepted = asking.completions(), asking.suggestions("accepted")
    editor.press("Tab")
    until_sync(lambda: asking.completions() > answered, "what comes after is asked for")
    assert editor.saved("tab.py") == BEFORE + TYPED + expected
    until_sync(lambda: asking.suggestions("accepted") == accepted + 1, "the daemon is told")
    assert editor.status() == "localspec"


def test_typing_along_shows_the_rest_without_a_request(editor: Editor, asking: Asking) -> None:
    whole = invoked(editor, asking, "along.py")
    answered = asking.completions()
    for typed in range(1, 4):
        editor.type(whole[typed - 1])
        editor.until_ghost(lambda ghost, rest=whole[typed:]: ghost == rest, f"after {typed} letters")  # type: ignore[misc]
    editor.press("Backspace")
    editor.until_ghost(lambda ghost: ghost == whole[2:], "what was typed along is restored")
    assert asking.completions() == answered
    editor.press("Tab")
    until_sync(lambda: asking.completions() > answered, "what comes after is asked for")
    assert editor.saved("along.py") == BEFORE + whole


def test_a_word_is_accepted_and_then_a_line(editor: Editor, asking: Asking) -> None:
    before = BEFORE + TYPED
    whole = invoked(editor, asking, "parts.py", before)
    assert "\n" in whole
    partial = asking.suggestions("partial")
    editor.press("Control+ArrowRight")
    rest = editor.until_ghost(lambda ghost: ghost != whole and whole.endswith(ghost) and ghost != "")
    assert "\n" not in whole.removesuffix(rest)
    until_sync(lambda: asking.suggestions("partial") == partial + 1, "the daemon is told of the word")
    editor.press("Control+Alt+l")
    editor.until_ghost(lambda ghost: ghost != rest and whole.endswith(ghost) and ghost != "")
    until_sync(lambda: asking.suggestions("partial") == partial + 2, "the daemon is told of the line")
    line = whole[: whole.index("\n") + 1]
    assert editor.saved("parts.py").startswith(before + line)


def test_what_is_dismissed_is_gone_until_something_is_typed(editor: Editor, asking: Asking) -> None:
    invoked(editor, asking, "gone.py")
    until_sync(lambda: asking.suggestions("shown") > 0, "it was seen")
    dismissed = asking.suggestions("dismissed")
    editor.press("Escape")
    editor.until_ghost(lambda ghost: ghost == "", "nothing is shown")
    expected = asking.text(editor.workspace / "gone.py", BEFORE + TYPED)
    editor.type(TYPED)
    editor.until_ghost(lambda ghost: ghost == expected, f"this is shown: {expected!r}")
    until_sync(lambda: asking.suggestions("dismissed") > dismissed, "the daemon is told")


def test_next_and_previous_go_through_what_the_daemon_has(editor: Editor, asking: Asking) -> None:
    first = invoked(editor, asking, "cycle.py")
    file = editor.workspace / "cycle.py"
    texts = [item.text for item in asking.completion(file, BEFORE, trigger="invoked").items]
    assert texts[0] == first and len(texts) > 1
    onward = (("Alt+BracketRight", text) for text in (*texts[1:], first))
    for key, shown in (*onward, ("Alt+BracketLeft", texts[-1])):
        editor.press(key)
        editor.until_ghost(lambda ghost, text=shown: ghost == text, f"this is shown: {shown!r}")  # type: ignore[misc]
    editor.press("Tab")
    editor.until_ghost(lambda ghost: ghost != texts[-1], "it is accepted")
    assert editor.saved("cycle.py") == BEFORE + texts[-1]


def test_brackets_that_the_editor_closes_belong_to_the_completion(editor: Editor, asking: Asking) -> None:
    file = editor.workspace / "brackets.py"
    whole = asking.text(file, BEFORE, trigger="invoked")
    begin = whole.index("(") - 1
    before, rest = BEFORE + whole[:begin], whole[begin:]
    editor.open("brackets.py", before)
    editor.press("Alt+Backslash")
    editor.until_ghost(lambda ghost: ghost == rest, f"this is shown: {rest!r}")
    answered = asking.completions()
    for letter in rest[:4]:
        editor.type(letter)
    editor.until_ghost(lambda ghost: ghost.startswith(rest[4:].partition("'")[0]), "typed along")
    assert asking.completions() == answered
    editor.press("Tab")
    until_sync(lambda: asking.completions() > answered, "what comes after is asked for")
    assert editor.saved("brackets.py") == before + rest


@pytest.mark.parametrize("before", WIDE)
def test_wide_characters_and_line_ends_stay_as_they_are(editor: Editor, asking: Asking, before: str) -> None:
    name = f"wide{len(before)}.py"
    whole = invoked(editor, asking, name, before)
    editor.type(whole[0])
    editor.until_ghost(lambda ghost: ghost == whole[1:], "typed along")
    editor.press("Tab")
    editor.until_ghost(lambda ghost: ghost != whole[1:], "it is accepted")
    text = editor.saved(name)
    assert text.replace("\r\n", "\n") == before.replace("\r\n", "\n") + whole
    assert text.count("\r\n") == text.count("\n") and "\r\r" not in text
