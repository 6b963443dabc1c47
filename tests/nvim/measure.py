"""Time from a key until the suggestion is on the drawn screen, in a real Neovim."""

from __future__ import annotations

import itertools
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.client.conftest import own_home
from tests.editors.keystroke import Keystroke
from tests.nvim.editor import Editor, editing

PLACES = (
    ("class Foo:\n    def __init__(self, name):\n        self", "."),
    ("def fib(n):\n    if n < 2:\n        return n\n    return", " "),
)
"""texts, and for each the key after which the bundled model continues it"""
APPEND = """
local localspec = require("localspec")
localspec.set("automatic", false)
vim.api.nvim_buf_set_lines(0, -1, -1, true, vim.split(..., "\\n"))
vim.cmd("normal! G$")
"""
BEGIN = "SPOKEN = {}; require('localspec').set('automatic', true)"


def measure(version: str, keystrokes: int, *, pause_s: float = 0.3) -> list[Keystroke]:
    """Of each key: milliseconds until its suggestion is drawn, and the daemon's own time of them.

    Every key is typed at another place of one growing file and sends one request; its answer is the one
    drawn. ``pause_s``: between a suggestion and the next key. The daemon's share is ``elapsed_ms``, which
    includes its own wait for a pause in the typing.
    """
    with (
        own_home() as home,
        tempfile.TemporaryDirectory() as folder,
        editing(version, home, automatic=False) as editor,
    ):
        editor.open(Path(folder) / "typed.py", "import sys\n")
        keys = (_keystroke(editor, number, pause_s) for number in itertools.count())
        shown = (times for times in keys if times is not None)
        next(shown)  # the model had to be loaded
        return list(itertools.islice(shown, keystrokes))


def _keystroke(editor: Editor, number: int, pause_s: float) -> Keystroke | None:
    """The times of one key; None where the model is unsure."""
    text, key = PLACES[number % len(PLACES)]
    editor.keys("<Esc>")
    editor.settled()
    editor.lua(APPEND, f"\n\nNUMBER = {number}\n{text}")
    editor.keys("A")
    editor.until(lambda: editor.expr("mode()") == "i", "text is inserted")
    editor.lua(BEGIN)
    time.sleep(pause_s)  # a person's
    began = time.perf_counter()
    editor.keys(key.replace(" ", "<Space>"))
    while not editor.ghost:
        editor.receive(0.1)
        answer = _answer(editor) if time.perf_counter() - max(began, editor.shown_at) > 0.1 else None
        if answer is not None and not answer["items"]:
            return None
    drawn, answer = editor.shown_at, _answer(editor)
    assert answer is not None and editor.ghost[0].strip() in answer["items"][0]["text"]
    return Keystroke((drawn - began) * 1000, answer["elapsed_ms"])


def _answer(editor: Editor) -> dict[str, Any] | None:
    """Return the daemon's answer to the key, which sends one request."""
    if not (spoken := editor.spoken("completion/inline")):
        return None
    (asked,) = spoken
    assert "error" not in asked, asked["error"]
    answer: dict[str, Any] | None = asked.get("result")
    return answer
