"""The picture of ghost text for the extension and the documentation, of a real VS Code.

.venv/bin/python -m tests.vscode.picture
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from tests.vscode.editor import View, editing, put_command

PATHS = ("plugins/vscode/images/ghost.png", "assets/pictures/vscode.png")
NAME = "registry.py"
BEFORE = """class Registry:
    \"\"\"Plugins by name.\"\"\"

    def __init__(self):
        self.data = {}

    def __len__(self):
        return len(self.data)

    def __contains__(self, name):
        return name in self.data

    def __iter__(self):
        return iter(self.data)

    def __eq__(self, other):"""
SHOWN = """return self.data == other.data

    def __repr__(self):
        return repr(self.data)"""
ENTRIES = ("status.workbench.keyboardLayout", "status.forwardedPorts")
"""of the status bar, as a person may hide them"""
VIEW = View(1000, 580, scale=2)
TIDY: dict[str, Any] = {
    "breadcrumbs.enabled": False,
    "editor.cursorBlinking": "solid",
    "editor.fontFamily": "DejaVu Sans Mono",
    "editor.fontSize": 15,
    "editor.guides.indentation": False,
    "editor.hideCursorInOverviewRuler": True,
    "editor.lineHeight": 24,
    "editor.overviewRulerBorder": False,
    "editor.padding.top": 8,
    "editor.scrollBeyondLastLine": False,
    "editor.scrollbar.vertical": "hidden",
    "editor.stickyScroll.enabled": False,
    "editor.inlineSuggest.showToolbar": "never",
    "workbench.activityBar.location": "hidden",
    "workbench.colorTheme": "Default Dark Modern",
    "workbench.editor.editorActionsLocation": "hidden",
    "workbench.layoutControl.enabled": False,
    "window.commandCenter": False,
}


def main() -> None:
    """Draw it once, with a home of its own, into both files."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    with tempfile.TemporaryDirectory(prefix="ls") as folder:
        picture = drawn(Path(folder))
    for path in PATHS:
        Path(path).write_bytes(picture)


def drawn(root: Path) -> bytes:
    """A completion of several lines, of which the line end was typed already."""
    with editing(root, put_command, VIEW, **TIDY) as editor:
        editor.start(NAME, BEFORE)
        editor.command("View: Close Primary Side Bar")
        editor.focus(NAME)
        editor.press("Alt+Backslash")
        editor.until_ghost(lambda ghost: ghost.endswith(SHOWN), "all lines are shown")
        editor.press("Enter")
        editor.until_ghost(lambda ghost: ghost == SHOWN, "what is left is shown")
        hidden = ", ".join(f'[id="{entry}"]' for entry in ENTRIES)
        editor.page.add_style_tag(content=f"{hidden} {{ display: none !important }}")
        editor.page.mouse.move(0, 0)
        return bytes(editor.page.screenshot())


if __name__ == "__main__":
    main()
