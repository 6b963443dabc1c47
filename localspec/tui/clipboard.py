"""The system's clipboard, by the platform's tool: not every terminal supports the escape sequence."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import NamedTuple

LIMIT_S = 2.0


class Tool(NamedTuple):
    """A command that reads the text to copy; used if the environment has ``variable``, "" for always."""

    variable: str
    command: tuple[str, ...]
    encoding: str = "utf-8"


TOOLS = (
    Tool("WAYLAND_DISPLAY", ("wl-copy", "--type", "text/plain")),  # without a type it guesses one
    Tool("DISPLAY", ("xclip", "-selection", "clipboard")),
    Tool("DISPLAY", ("xsel", "--clipboard", "--input")),
    Tool("", ("clip.exe",), "utf-16-le"),
    Tool("", ("pbcopy",)),
)


def put(text: str) -> None:
    """Copy ``text`` if there is a tool for it; blocks, at most ``LIMIT_S``.

    Failures are ignored: the terminal copies it, too. Not used over SSH, where the clipboard is another one.
    """
    tools = (t for t in TOOLS if not t.variable or os.environ.get(t.variable))
    tool = next((t for t in tools if shutil.which(t.command[0])), None)
    if tool is None or os.environ.get("SSH_CONNECTION"):
        return
    try:
        subprocess.run(
            tool.command,
            input=text.encode(tool.encoding, errors="replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=LIMIT_S,
            env={**os.environ, "LC_CTYPE": "UTF-8"} if tool.command == ("pbcopy",) else None,
            start_new_session=True,  # some tools stay to serve pastes, also after the terminal is closed
        )
    except (OSError, subprocess.SubprocessError):
        return
