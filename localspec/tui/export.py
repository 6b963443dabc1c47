"""Text that leaves the chat: into the system's clipboard, or a Markdown file."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable
from itertools import chain, count
from pathlib import Path

from localspec.errors import StorageError
from localspec.tui.attach import fence_for
from localspec.tui.conversation import ChatCall, ChatQuestion, Said
from localspec.wording import one_line

LONGEST_NAME = 60
"""characters of a title in a file's name: names have at most 255 bytes"""
COPYING_S = 2.0
TOOLS = (
    ("WAYLAND_DISPLAY", "wl-copy --type text/plain"),  # without a type it guesses one
    ("DISPLAY", "xclip -selection clipboard"),
    ("DISPLAY", "xsel --clipboard --input"),
    ("PATH", "clip.exe"),
    ("PATH", "pbcopy"),
)
"""commands that read the text to copy, each with the variable without which it cannot work"""


def copy(text: str) -> None:
    """Copy ``text`` if there is a tool for it, as not every terminal can; blocks, at most ``COPYING_S``. Has
    no effect over SSH, where the clipboard is another one; failures are ignored: the terminal copies, too."""
    usable = (tool.split() for variable, tool in TOOLS if os.environ.get(variable))
    command = next((each for each in usable if shutil.which(each[0])), None)
    if command is None or os.environ.get("SSH_CONNECTION"):
        return
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(
            command,
            input=text.encode("utf-16-le" if command == ["clip.exe"] else "utf-8", errors="replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=COPYING_S,
            env={**os.environ, "LC_CTYPE": "UTF-8"} if command == ["pbcopy"] else None,
            start_new_session=True,  # some tools stay to serve pastes, also after the terminal is closed
        )


def markdown(title: str, model: str | None, system: str | None, said: Iterable[Said]) -> str:
    date = time.strftime("%Y-%m-%d %H:%M")
    parts = [f"# {one_line(title) or 'Chat'}", f"{date} · {one_line(model)}" if model else date]
    if system:
        parts.append(f"## System\n\n{system}")
    for each in said:
        if isinstance(each, ChatCall):
            fence = fence_for(each.text)
            parts.append(f"## Call of {each.made.begun}\n\n{fence}\n{each.text}\n{fence}")
        elif each.text:
            heading = "Question" if isinstance(each, ChatQuestion) else f"Answer ({each.status})"
            parts.append(f"## {heading.removesuffix(' (complete)')}\n\n{each.text}")
    return "\n\n".join(parts) + "\n"


def write(text: str, place: str, title: str) -> Path:
    """Write a new file and return its path; if the name is taken, a number is added. Without a name in
    ``place`` the file is named after ``title``. Raises :class:`StorageError`."""
    path = Path(os.path.abspath(os.path.expanduser(place)))
    if not place or place.endswith(os.sep) or os.path.isdir(path):
        path /= f"{file_name(title)}.md"
    numbered = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2))
    try:
        new = next(each for each in chain((path,), numbered) if not os.path.lexists(each))
        file = new.open("xb")
        try:
            with file:
                file.write(text.encode())
        except (OSError, UnicodeError):
            new.unlink(missing_ok=True)  # no incomplete file stays
            raise
    except OSError as error:
        sentence = f"{one_line(str(path))} cannot be written: {error.strerror}"
        raise StorageError(sentence, "Give another path: /export PATH.") from None
    return new


def file_name(title: str) -> str:
    return re.sub(r"[^\w.]+", "-", title)[:LONGEST_NAME].strip("-.") or "chat"
