"""``localspec service …``: the daemon started at login, by systemd or launchd."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from localspec.cli import output
from localspec.cli.logs import logs
from localspec.config import load_config
from localspec.errors import DaemonUnavailable, EngineBusy, ExitCode, VersionSkew
from localspec.service import service
from localspec.service.job import daemon_job
from localspec.service.service import Status, this_manager

__all__ = ["install", "logs", "status", "uninstall"]

AsJson = Annotated[bool, Parameter(name="--json")]
BUSY = (
    "a daemon is at work and was left alone; the service takes its place when that has ended and a command "
    "needs one, or at the next login."
)


def install(*, as_json: AsJson = False) -> int:
    """Start the daemon at login from now on, and now; what was installed before is brought up to date.

    The service has this shell's LOCALSPEC_HOME, and what else says where files, models, libraries and devices
    are. A daemon that is idle is replaced, one at work is left alone.

    Parameters
    ----------
    as_json
        Print one JSON object: the status, and changed, left_alone.
    """
    load_config()
    manager, job = this_manager(), daemon_job()
    changed = service.install(manager, job)
    busy = False
    if changed or not service.runs_as(manager.running().pid, job):
        busy = not asyncio.run(_make_way())
        if not busy:
            manager.start()
    found = service.status(manager, job)
    if as_json:
        _print(found, changed=changed, left_alone=busy)
    else:
        output.write(f"{'Installed' if changed else 'Already installed'}: {describe(found)}")
        if busy:
            output.note(f"localspec: {BUSY}")
    return ExitCode.OK


async def _make_way() -> bool:
    """Stop the daemon that runs unless it is at work; whether none runs now."""
    from localspec.client import connect

    try:
        async with await connect(start=False) as client:
            await client.shutdown(if_idle=True)
    except (EngineBusy, VersionSkew):
        return False  # one that speaks another protocol cannot be asked whether it is at work
    except DaemonUnavailable:
        pass
    return True


def uninstall(*, as_json: AsJson = False) -> int:
    """End the service and start it no more; a daemon that a command started goes on.

    The service of another LOCALSPEC_HOME is left alone: it is removed as that one's.

    Parameters
    ----------
    as_json
        Print one JSON object: removed.
    """
    manager = this_manager()
    removed = service.uninstall(manager, daemon_job())
    if as_json:
        output.json({"removed": removed, "file": str(manager.path)})
    else:
        output.write(f"Removed {manager.path}.\n" if removed else "No service is installed.\n")
    return ExitCode.OK


def status(*, as_json: AsJson = False) -> int:
    """Whether the service is installed and runs; exits with 69 if not.

    Parameters
    ----------
    as_json
        Print one JSON object: manager, file, installed, current, other_home, enabled, state, pid, log,
        daemon_pid.
    """
    found = service.status(this_manager(), daemon_job())
    if as_json:
        _print(found, daemon_pid=_daemon_pid())
    else:
        output.write(describe(found))
        for line in _notes(found, _daemon_pid()):
            output.note(f"localspec: {line}")
    return ExitCode.OK if found.pid and found.installed and found.other_home is None else ExitCode.UNAVAILABLE


def describe(found: Status) -> str:
    """A service's status for a person."""
    if not found.installed:
        return f"No service is installed ({found.manager}).\n"
    runs = f"pid {found.pid}, {found.state}" if found.pid else f"not running, {found.state}"
    return f"{found.file}\n{found.manager}: {runs}\nlog: {found.log}\n"


def _notes(found: Status, daemon_pid: int | None) -> list[str]:
    notes = []
    if found.other_home is not None:
        notes.append(f"that is the service of another home: {found.other_home}.")
    elif found.installed and not found.current:
        notes.append(
            "the service was installed by another localspec, or with another environment; "
            "`localspec service install` brings it up to date."
        )
    if daemon_pid is not None and daemon_pid != found.pid:
        notes.append(f"the daemon that runs (pid {daemon_pid}) was started by a command, not by the service.")
    return notes


def _daemon_pid() -> int | None:
    from localspec.client import discovery

    found = discovery.find()
    if found is None:
        return None
    import psutil

    return found.pid if psutil.pid_exists(found.pid) else None


def _print(found: Status, **more: Any) -> None:
    output.json({**msgspec.to_builtins(found), **more})
