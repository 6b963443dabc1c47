"""``localspec daemon logs`` and ``localspec service logs``: the log of the daemon, the same for both."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from localspec import home
from localspec.cli import output
from localspec.errors import ExitCode
from localspec.wording import printable

LOGS = ("localspec daemon logs -n 100", "localspec daemon logs --follow")
"""examples"""
LOOK_S = 0.2


def logs(
    *,
    lines: Annotated[int, Parameter(name=["--lines", "-n"])] = 50,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"])] = False,
) -> int:
    """Print the end of the daemon's log, whether a client or the service started the daemon.

    Parameters
    ----------
    lines
        Number of lines; otherwise 50.
    follow
        Continue with new lines until Ctrl-C.
    """
    log = home.log_path()
    position = _size(log)
    last = _last(lines, position)
    if not last and not log.exists():
        output.note(f"There is no log yet: {log} is written when a client or the service starts the daemon.")
    for line in last:
        output.write(printable(f"{line}\n"))
    while follow:
        position = _go_on(log, position)
        time.sleep(LOOK_S)
    return ExitCode.OK


def _last(count: int, end: int) -> list[str]:
    """The last lines before byte ``end``, if needed also from the older logs."""
    found: list[str] = []
    for path in (home.log_path(), *home.older_logs()):
        if len(found) >= count:
            break
        if path.exists():
            text = path.read_bytes()[: end if path == home.log_path() else None]
            found = text.decode(errors="replace").removesuffix("\n").split("\n") + found if text else found
    return found[-count:] if count > 0 else []


def _go_on(log: Path, position: int) -> int:
    """Write the complete lines after ``position``; return the next position. A shortened log is read anew."""
    size = _size(log)
    if size < position:
        position = 0
    if size > position:
        with open(log, "rb") as file:
            file.seek(position)
            text = file.read()
        # A line that is being written is shown when it is complete.
        whole = text[: text.rfind(b"\n") + 1]
        output.write(printable(whole.decode(errors="replace")))
        position += len(whole)
    return position


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except FileNotFoundError:
        return 0
