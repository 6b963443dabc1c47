"""The daemon's log as a file: it holds what native code says, too, and never grows large."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shutil
from itertools import pairwise
from pathlib import Path

from localspec import home
from localspec.protocol.bounds import shortened

MAX_BYTES = 4 * 1024 * 1024
CHECK_S = 10.0
"""how often its size is looked at: workers write into it without asking anybody"""
OUTPUTS = (1, 2)
LONGEST_LINE = 2000
"""characters of a message: it may repeat names that a client chose"""

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class OneLine(logging.Formatter):
    """A message is one line whatever names it repeats: a client's words neither begin a line nor command the
    terminal that shows them."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        line = shortened(super().formatMessage(record), LONGEST_LINE)
        return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], line)


def redirect() -> None:
    """From here on stdout and stderr, also those of the processes to come, are the home's log."""
    with home.opened_log() as log:
        if (path := home.log_path()).exists():
            path.chmod(0o600)
        for output in OUTPUTS:
            os.dup2(log.fileno(), output)


async def keep_small() -> None:
    """Cut the home's log when it is too long, until cancelled."""
    # Asked once: that makes the directory, which would come back after it was deleted.
    log, older = home.log_path(), home.older_logs()
    while True:
        cut(log, older)
        await asyncio.sleep(CHECK_S)


def cut(log: Path, older: tuple[Path, ...]) -> None:
    """Once the log is too long: move its newest part to the first of ``older``, that one's to the second, ….

    Workers, and the native code in them, have the file open for as long as they live. So it is copied and
    emptied instead of renamed: who appends to it goes on in the same file.
    """
    try:
        if log.stat().st_size <= MAX_BYTES:
            return
    except OSError:
        return
    # That it stays small was promised, that the old part is kept on a full disk was not.
    with contextlib.suppress(OSError):
        for older_one, newer in pairwise(reversed(older)):
            if newer.exists():
                os.replace(newer, older_one)
        with open(log, "rb") as whole, open(older[0], "wb", opener=home.private_opener) as kept:
            whole.seek(-MAX_BYTES, os.SEEK_END)
            shutil.copyfileobj(whole, kept)
    with contextlib.suppress(OSError):
        os.truncate(log, 0)
