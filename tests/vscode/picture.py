"""The picture of ghost text for the extension and the documentation, of a real VS Code.

.venv/bin/python -m tests.vscode.picture
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from assets.screenshots import settings_for
from localspec.models.catalogue import DEFAULT
from localspec.models.library import find
from tests.vscode.editor import View, editing, put_command

PATHS = ("plugins/vscode/images/ghost.png", "assets/pictures/vscode.png")
NAME = "registry.py"
BEFORE = """class Registry:
    \"\"\"Plugins by name.\"\"\"

    def __init__(self):
        self.data = {}

    def __len__(self):
        return len(self.data)

    def merge(self, other):"""
ENTRIES = ("status.workbench.keyboardLayout", "status.forwardedPorts")
"""of the status bar, as a person may hide them"""
VIEW = View(1000, 650, scale=2)
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=DEFAULT)
    model = find(parser.parse_args().model)
    with tempfile.TemporaryDirectory(prefix="ls") as folder:
        config = Path(folder, "home", "config")
        config.mkdir(parents=True)
        (config / "config.toml").write_text(settings_for(str(model.path)))
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
        left = editor.until_ghost().lstrip()
        editor.press("Enter")
        editor.until_ghost(lambda ghost: ghost == left, "what is left is shown")
        hidden = ", ".join(f'[id="{entry}"]' for entry in ENTRIES)
        editor.page.add_style_tag(content=f"{hidden} {{ display: none !important }}")
        editor.page.mouse.move(0, 0)
        return bytes(editor.page.screenshot())


if __name__ == "__main__":
    main()
