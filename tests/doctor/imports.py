"""Interpreters in which the import of a package goes wrong."""

from __future__ import annotations

from pathlib import Path

REFUSE = "raise ModuleNotFoundError(f'No module named {name!r}', name=name)"
KILL = "os.kill(os.getpid(), signal.SIGILL)"
HANG = "time.sleep(600)"
BREAK = "raise RuntimeError('libllama.so cannot be opened')"
PRINT = "print('{native code talks}')"

HOOK = """
import os, signal, sys, time

class Hook:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            {what}

sys.meta_path.insert(0, Hook())
"""


def at_import(folder: Path, package: str, what: str) -> None:
    """Let every Python with ``folder`` on its PYTHONPATH do this when it imports ``package``."""
    (folder / "sitecustomize.py").write_text(HOOK.format(package=package, what=what))
