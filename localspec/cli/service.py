"""``localspec service …``: the daemon started at login, by systemd or launchd."""

from __future__ import annotations

import asyncio

import msgspec
from cyclopts import App

from localspec.cli import output
from localspec.cli.flags import AsJson
from localspec.cli.output import examples
from localspec.client import connect, discovery
from localspec.config import load_config
from localspec.errors import DaemonUnavailable, EngineBusy, ExitCode, VersionSkew
from localspec.service import service
from localspec.service.service import ServiceStatus, daemon_job, this_manager

BUSY = "localspec: the running daemon has requests and was not replaced; the service starts once it ends."
OUTDATED = "localspec: the service's file is not up to date; `localspec service install` updates it."
FAILED = "localspec: it failed, see `localspec daemon logs`; `localspec service install` starts it again."
app = App(name="service", help_epilogue=examples("localspec service install", "localspec service status"))


@app.command(help_epilogue=examples("LOCALSPEC_HOME=~/portable localspec service install"))
def install(*, as_json: AsJson = False) -> int:
    """Install the service, which starts the daemon now and at every login; an older one is updated.

    The service gets this shell's LOCALSPEC_HOME and other variables for files, models and devices.
    An idle daemon is replaced, one with running requests is not.
    """
    load_config()
    manager, job = this_manager(), daemon_job()
    service.install(manager, job)
    stopped = asyncio.run(_stop_idle())
    if stopped:
        manager.start()
    found = service.status(manager, job)
    if as_json:
        output.json({**msgspec.to_builtins(found), "left_alone": not stopped})
    else:
        output.write(f"Installed: {describe(found)}")
        if not stopped:
            output.note(BUSY)
    return ExitCode.OK


async def _stop_idle() -> bool:
    """Stop the daemon unless it has running requests; return True if none runs now."""
    try:
        async with await connect(start=False) as client:
            await client.shutdown(if_idle=True)
    except (EngineBusy, VersionSkew):
        return False  # a daemon with another protocol cannot report its requests
    except DaemonUnavailable:
        pass
    return True


@app.command
def uninstall(*, as_json: AsJson = False) -> int:
    """Stop the service and remove it; a daemon that a command started keeps running.

    The service of another LOCALSPEC_HOME is kept: remove it with that LOCALSPEC_HOME.
    """
    manager = this_manager()
    removed = service.uninstall(manager, daemon_job())
    text = f"Removed {manager.path}.\n" if removed else "No service is installed.\n"
    output.show({"removed": removed, "file": str(manager.path)}, text, as_json=as_json)
    return ExitCode.OK


@app.command
def status(*, as_json: AsJson = False) -> int:
    """Show if the service is installed and runs; exits with 69 if not."""
    found, daemon = service.status(this_manager(), daemon_job()), discovery.find()
    pid = daemon.pid if daemon is not None and discovery.runs() else None
    if as_json:
        output.json({**msgspec.to_builtins(found), "daemon_pid": pid})
    else:
        output.write(describe(found))
        if found.other_home:
            output.note("localspec: this service belongs to another home.")
        elif found.installed and not found.current:
            output.note(OUTDATED)
        elif found.state.startswith("failed"):
            output.note(FAILED)
        if pid not in (None, found.pid):
            output.note(f"localspec: the running daemon (pid {pid}) was started by a command.")
    return ExitCode.OK if found.pid and found.installed and not found.other_home else ExitCode.UNAVAILABLE


def describe(found: ServiceStatus) -> str:
    if not found.installed:
        return f"No service is installed ({found.manager}).\n"
    process = f"pid {found.pid}" if found.pid else "not running"
    return f"{found.file}\n{found.manager}: {process}, {found.state}\nlog: {found.log}\n"
