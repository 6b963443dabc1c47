"""The daemon's log file: of bounded size, with the output of native code, too."""

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
from localspec.protocol.jsonrpc import shorten

MAX_BYTES = 4 * 1024 * 1024
CHECK_S = 10.0
"""seconds between two checks of its size: workers write into it directly"""
LONGEST_LINE = 2000
"""characters of a message, which may repeat names given by a client"""
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class OneLine(logging.Formatter):
    """Formats a message as one line without control characters: text of a client can neither begin a line
    nor control the terminal that shows it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        line = shorten(super().formatMessage(record), LONGEST_LINE)
        return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], line)


def redirect() -> None:
    """Redirect stdout and stderr, also those of later child processes, to the home's log."""
    with home.open_log() as log:
        if (path := home.log_path()).exists():
            path.chmod(0o600)
        for output in (1, 2):
            os.dup2(log.fileno(), output)


async def keep_small() -> None:
    """Cut the home's log when it is too long, until cancelled."""
    # The path is computed once: that creates the directory, which would come back after its deletion.
    log, older = home.log_path(), home.older_logs()
    while True:
        cut(log, older)
        await asyncio.sleep(CHECK_S)


def cut(log: Path, older: tuple[Path, ...]) -> None:
    """Rotate a log that is too long: its newest part to the first of ``older``, that one's to the second, ….
    It is copied and emptied instead of renamed: workers keep the file open, and go on appending to it."""
    try:
        if log.stat().st_size <= MAX_BYTES:
            return
    except OSError:
        return
    # The size is bounded in any case; on a full disk the old part is lost.
    with contextlib.suppress(OSError):
        for older_one, newer in pairwise(reversed(older)):
            if newer.exists():
                os.replace(newer, older_one)
        with open(log, "rb") as whole, open(older[0], "wb", opener=home.private_opener) as kept:
            whole.seek(-MAX_BYTES, os.SEEK_END)
            shutil.copyfileobj(whole, kept)
    with contextlib.suppress(OSError):
        os.truncate(log, 0)
