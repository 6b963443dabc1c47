"""Time from a key to ghost text on the screen, in a real VS Code."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path
from typing import Any

from tests.editors.keystroke import Keystroke
from tests.vscode.editor import GHOST, Editor, editing, put_command

CONFIG = "[daemon]\nport = 0\n"
PLAIN: dict[str, Any] = {
    "editor.autoIndent": "none",
    "editor.autoClosingBrackets": "never",
    "editor.autoClosingQuotes": "never",
}
"""settings with which typed text is not changed"""

WATCH = f"""() => {{
  const ghost = {GHOST}
  const drawn = new MessageChannel()
  let key
  window.localspecPainted = null
  drawn.port1.onmessage = ({{ data }}) => {{ window.localspecPainted = performance.now() - data }}
  window.addEventListener('keydown', event => {{
    key = ghost() === '' ? event.timeStamp : undefined
    window.localspecPainted = null
  }}, true)
  new MutationObserver(() => {{
    if (key === undefined || ghost() === '') {{
      return
    }}
    const since = key
    key = undefined
    // A message that is sent while a frame is made comes after that frame was drawn.
    requestAnimationFrame(() => drawn.port2.postMessage(since))
  }}).observe(document.body, {{ subtree: true, childList: true, characterData: true }})
}}"""


def measure(keystrokes: int, root: Path, config: str = CONFIG) -> list[Keystroke]:
    """Type until so many keys were counted: of each the milliseconds until its completion was drawn, and
    those that the daemon says it took. What the daemon chose to wait is part of both.

    Counted are keys at which the model was asked and something was shown: neither those typed along what was
    suggested before, nor those whose answer the daemon had already. ``root`` is an empty folder for the
    editor and for a localspec home, whose ``config.toml`` says ``config``. Skips where an editor is missing.
    """
    folder = root / "home" / "config"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(config)
    with editing(root, put_command, **PLAIN) as editor:
        editor.start("typed.py")
        return measured(editor, keystrokes)


def measured(editor: Editor, keystrokes: int) -> list[Keystroke]:
    """The same in an editor that is there, in the file that is open."""
    editor.page.evaluate(WATCH)
    figures: list[Keystroke] = []
    for letter in inspect.getsource(textwrap):
        figures += _counted(editor, letter)
        if len(figures) == keystrokes:
            return figures
    raise AssertionError(f"of all keys only {len(figures)} could be counted")


def _counted(editor: Editor, letter: str) -> list[Keystroke]:
    """Type a letter; its figures, if it counts."""
    if editor.ghost():
        editor.press("Escape")
        editor.until_ghost(lambda ghost: ghost == "", "nothing is shown")
    if not editor.type_and_ask(letter):
        return []
    last = editor.last()
    if last.source != "model" or last.characters == 0:
        return []
    editor.page.wait_for_function("() => window.localspecPainted !== null")
    return [Keystroke(float(editor.page.evaluate("() => window.localspecPainted")), last.daemon_ms)]
