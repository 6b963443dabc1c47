"""A systemd of a user's own, for tests: its mounts and control group are its own, as root can have them made.

Without a group of its own it would take all processes of the root's for its own: then it is not started.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import DEADLINE_S, until_sync

OPT_IN = "LOCALSPEC_USER_SYSTEMD"
BOOTED = Path("/run/systemd/system")
SYSTEMD = Path("/lib/systemd/systemd")
BEGIN = """
mount -t tmpfs none /run/systemd && mkdir /run/systemd/system || exit 1
umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup || exit 1
mkdir /sys/fs/cgroup/"$1" && echo $$ > /sys/fs/cgroup/"$1"/cgroup.procs || exit 1
exec "$0" --user
"""
END = """
umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup
find /sys/fs/cgroup/"$0" -depth -type d -exec rmdir {} ';'
"""
SYSTEMCTL = """#!/bin/sh
exec nsenter --mount --target {pid} {systemctl} "$@"
"""


class CannotRun(Exception):
    """An error with the reason why no systemd can run here."""


@contextmanager
def user_systemd(folder: Path) -> Iterator[dict[str, str]]:
    """The environment of a person whose systemd runs, at home in ``folder``. Raises :class:`CannotRun`."""
    _check()
    environment = {
        "HOME": str(folder / "user"),
        "XDG_RUNTIME_DIR": str(folder / "run"),
        "PATH": os.environ["PATH"],
    }
    for name in ("user", "run", "bin"):
        (folder / name).mkdir(mode=0o700)
    group = f"localspec-{os.getpid()}"
    with open(folder / "systemd.log", "wb") as log:
        manager = subprocess.Popen(
            ("unshare", "--mount", "sh", "-c", BEGIN, str(SYSTEMD), group),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**environment, "SYSTEMD_LOG_TARGET": "console"},
        )
    systemctl = folder / "bin" / "systemctl"
    systemctl.write_text(SYSTEMCTL.format(pid=manager.pid, systemctl=shutil.which("systemctl")))
    systemctl.chmod(0o755)
    environment["PATH"] = f"{systemctl.parent}:{environment['PATH']}"
    try:
        until_sync(lambda: _answers(environment) or manager.poll() is not None, "systemd answers")
        if manager.poll() is not None:
            raise CannotRun(f"systemd ends: {(folder / 'systemd.log').read_text()[-300:]}")
        yield environment
    finally:
        manager.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            manager.wait(DEADLINE_S)
        manager.kill()
        manager.wait()
        subprocess.run(("unshare", "--mount", "sh", "-c", END, group), capture_output=True)


def _check() -> None:
    if OPT_IN not in os.environ:
        raise CannotRun(f"it is started, as root, where {OPT_IN} is set")
    for program in ("unshare", "nsenter", "systemctl"):
        if shutil.which(program) is None:
            raise CannotRun(f"there is no {program}")
    if not SYSTEMD.exists() or os.geteuid() != 0:
        raise CannotRun("it takes root and an installed systemd")
    if BOOTED.exists():
        raise CannotRun("this machine has a systemd of its own, which is left alone")


def _answers(environment: dict[str, str]) -> bool:
    command = ("systemctl", "--user", "is-system-running")
    asked = subprocess.run(command, env=environment, capture_output=True, text=True)
    return asked.stdout.strip() in ("running", "degraded")
