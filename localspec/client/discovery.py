"""Finding the daemon, and starting it."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import subprocess
import sys
import threading
import time
from subprocess import DEVNULL
from typing import Annotated

import msgspec
from msgspec import Meta

from localspec import home, process
from localspec.config import load_config
from localspec.errors import DaemonUnavailable, DiskFull, of_system
from localspec.home import read_regular
from localspec.protocol.messages import Discovery

COMMAND = process.python("localspec.daemon")
START_S = 30.0
"""longest wait for a daemon to listen"""
SERVICE_S = 10.0
"""longest wait for a service to start it; after that this client does"""
SERVICE_STEP_S = 0.1
PROBE_S = 1.0
TAIL_LINES = 5
LARGEST = 1 << 20
"""bytes of a file that names the daemon or its service"""
ROOM = 1 << 14
"""bytes; a disk with less free space counts as full"""
DISK = "Check that this disk is writable and not full, or set LOCALSPEC_HOME to another directory."


class Starter(msgspec.Struct, frozen=True):
    """A service's command to start the daemon of this home, for clients of the Python in ``prefix``. Valid
    while the service's ``file`` has this ``content``: there is one service for any number of homes."""

    prefix: str
    file: str
    content: str
    start: Annotated[tuple[str, ...], Meta(min_length=1)]


def find() -> Discovery | None:
    """The addresses that a daemon has announced, if any; it may have been killed since."""
    try:
        return msgspec.json.decode(read_regular(home.discovery_path(), LARGEST) or b"", type=Discovery)
    except (OSError, msgspec.MsgspecError):
        return None


def start_daemon(command: tuple[str, ...] = COMMAND) -> None:
    """Start a daemon, detached, unless one listens already; blocks until it is ready. Raises
    :class:`DaemonUnavailable` with the end of its log if it does not start, and :class:`InvalidOptions` for a
    broken configuration. Of several that are started at once, one listens and the others end."""
    load_config()
    try:
        if not runs() and not _start_service():
            _spawn(command)
    except OSError as error:
        failed = of_system(error, "the daemon cannot be started")
        raise failed or DaemonUnavailable(f"the daemon cannot be started: {error}", DISK) from None


def runs() -> bool:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(PROBE_S)
            probe.connect(str(home.socket_path()))
    except OSError:
        return False
    return True


def _start_service() -> bool:
    """Start the daemon by the service installed for this home, if any; returns True once it listens."""
    try:
        starter = msgspec.json.decode(read_regular(home.starter_path(), LARGEST) or b"", type=Starter)
        if read_regular(starter.file, LARGEST) != starter.content.encode():
            return False
    except (OSError, ValueError):
        return False
    if starter.prefix != sys.prefix:
        return False  # its daemon may be older than this client, which would replace it again and again
    deadline, around = time.monotonic() + SERVICE_S, process.surroundings()
    while time.monotonic() < deadline:
        try:
            # Has no effect while the last daemon is stopping, so it is repeated.
            subprocess.run(
                starter.start, stdin=DEVNULL, capture_output=True, timeout=START_S, check=True, **around
            )
        except (OSError, subprocess.SubprocessError):
            return False
        if runs():
            return True
        time.sleep(SERVICE_STEP_S)
    return False


def _spawn(command: tuple[str, ...]) -> None:
    advice = f"See {home.log_path()}, or run `localspec daemon run` to watch it start."
    ready, started = os.pipe()
    with open(ready, "rb", buffering=0) as pipe:
        try:
            with home.open_log() as log:
                begin = log.tell()
                daemon = subprocess.Popen(
                    (*command, "--log", "--ready-fd", str(started)),
                    pass_fds=(started,),
                    stdin=DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    # NOTIFY_SOCKET is for the program that a supervisor of this client waits for.
                    **process.surroundings(without=("NOTIFY_SOCKET",)),
                )
        finally:
            os.close(started)
        # Reaps the daemon should it end before this program does.
        threading.Thread(target=daemon.wait, name="daemon-reaper", daemon=True).start()
        listening, _, _ = select.select([pipe], [], [], START_S)
        if not listening:
            daemon.terminate()
            raise DaemonUnavailable(f"the daemon did not accept connections within {START_S:.0f} s", advice)
        if pipe.read(1) != b"1":
            _check_room()
            raise DaemonUnavailable(f"the daemon ended during its start{_tail(begin)}", advice)


def _check_room() -> None:
    """Raise :class:`DiskFull` if there is no room for the daemon's address or its log."""
    for place in (home.runtime_dir(), home.state_dir()):
        if shutil.disk_usage(place).free < ROOM:
            raise DiskFull(f"the daemon cannot start: no space left in {place}")


def _tail(begin: int) -> str:
    lines: list[str] = []
    with contextlib.suppress(FileNotFoundError), open(home.log_path(), "rb") as log:
        log.seek(begin)
        lines = log.read().decode(errors="replace").splitlines()[-TAIL_LINES:]
    return ": " + "\n".join(lines) if lines else ""
