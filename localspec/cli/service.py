"""``localspec service …``: the daemon started at login, by systemd or launchd."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from localspec.cli import output
from localspec.cli.logs import logs
from localspec.client import connect, discovery
from localspec.config import load_config
from localspec.errors import DaemonUnavailable, EngineBusy, ExitCode, VersionSkew
from localspec.service import service
from localspec.service.job import daemon_job
from localspec.service.service import Status, this_manager

__all__ = ["install", "logs", "status", "uninstall"]

AsJson = Annotated[bool, Parameter(name="--json")]
BUSY = (
    "the running daemon has requests and was not replaced; the service starts when that daemon has ended and "
    "a command needs one, or at the next login."
)


def install(*, as_json: AsJson = False) -> int:
    """Install the service, which starts the daemon now and at every login; an older one is updated.

    The service gets this shell's LOCALSPEC_HOME and the other variables for files, models, libraries and
    devices. An idle daemon is replaced, one with running requests is not.

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
    """Stop the daemon unless it has running requests; return True if none runs now."""

    try:
        async with await connect(start=False) as client:
            await client.shutdown(if_idle=True)
    except (EngineBusy, VersionSkew):
        return False  # a daemon with another protocol cannot report its requests
    except DaemonUnavailable:
        pass
    return True


def uninstall(*, as_json: AsJson = False) -> int:
    """Stop the service and remove it; a daemon that a command started keeps running.

    The service of another LOCALSPEC_HOME is kept: remove it with that LOCALSPEC_HOME.

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
    """Show if the service is installed and runs; exits with 69 if not.

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
    """A service's status as lines of text."""
    if not found.installed:
        return f"No service is installed ({found.manager}).\n"
    runs = f"pid {found.pid}, {found.state}" if found.pid else f"not running, {found.state}"
    return f"{found.file}\n{found.manager}: {runs}\nlog: {found.log}\n"


def _notes(found: Status, daemon_pid: int | None) -> list[str]:
    notes = []
    if found.other_home is not None:
        notes.append(f"this service belongs to another home: {found.other_home}.")
    elif found.installed and not found.current:
        notes.append(
            "the service was installed by another localspec, or with another environment; "
            "`localspec service install` updates it."
        )
    if daemon_pid is not None and daemon_pid != found.pid:
        notes.append(f"the running daemon (pid {daemon_pid}) was started by a command, not by the service.")
    return notes


def _daemon_pid() -> int | None:

    found = discovery.find()
    if found is None:
        return None
    import psutil

    return found.pid if psutil.pid_exists(found.pid) else None


def _print(found: Status, **more: Any) -> None:
    output.json({**msgspec.to_builtins(found), **more})
