"""The system's clipboard, by the platform's tool: not every terminal supports the escape sequence."""

from __future__ import annotations

import os
import shutil
import subprocess

LIMIT_S = 2.0

TOOLS = (
    ("WAYLAND_DISPLAY", "wl-copy --type text/plain"),  # without a type it guesses one
    ("DISPLAY", "xclip -selection clipboard"),
    ("DISPLAY", "xsel --clipboard --input"),
    ("PATH", "clip.exe"),
    ("PATH", "pbcopy"),
)
"""commands that read the text to copy, each with the variable without which it cannot work"""


def put(text: str) -> None:
    """Copy ``text`` if there is a tool for it; blocks, at most ``LIMIT_S``.

    Failures are ignored: the terminal copies it, too. Not used over SSH, where the clipboard is another one.
    """
    usable = (tool.split() for variable, tool in TOOLS if os.environ.get(variable))
    command = next((each for each in usable if shutil.which(each[0])), None)
    if command is None or os.environ.get("SSH_CONNECTION"):
        return
    try:
        subprocess.run(
            command,
            input=text.encode("utf-16-le" if command == ["clip.exe"] else "utf-8", errors="replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=LIMIT_S,
            env={**os.environ, "LC_CTYPE": "UTF-8"} if command == ["pbcopy"] else None,
            start_new_session=True,  # some tools stay to serve pastes, also after the terminal is closed
        )
    except (OSError, subprocess.SubprocessError):
        return
