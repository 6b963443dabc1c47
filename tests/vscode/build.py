"""The extension built from its source, by one process at a time: all write the same files."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.editors.found import ROOT

PLUGIN = ROOT / "plugins" / "vscode"
QUIET = {"npm_config_update_notifier": "false"}


def npm(*words: str) -> str:
    """Run npm in the extension's folder and return its output; skip if its tools are not installed."""
    modules = PLUGIN / "node_modules"
    if shutil.which("npm") is None or not modules.is_dir():
        pytest.skip("the extension's tools are not installed: run `npm ci` in plugins/vscode")
    with open(modules / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            ("npm", *words), cwd=PLUGIN, env={**os.environ, **QUIET}, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def package(folder: Path) -> Path:
    said = npm("run", "package", "--", "--out", str(folder))
    assert "WARN" not in said, said
    (path,) = folder.glob("localspec-*.vsix")
    return path
