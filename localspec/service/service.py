"""Install, remove and describe the service of this machine's manager."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import msgspec

from localspec import home
from localspec.client.discovery import Starter
from localspec.errors import ServiceUnavailable
from localspec.service.job import Job, as_of, home_of
from localspec.service.launchd import Launchd
from localspec.service.manager import Manager
from localspec.service.systemd import Systemd

MANAGERS: dict[str, type[Manager]] = {"linux": Systemd, "darwin": Launchd}
NO_MANAGER = "The daemon needs no service: every command that needs it starts it. "
REMEDIES = {
    "linux": NO_MANAGER + "To have one, log in (or ssh) to a machine with a systemd for users; "
    "su and most containers start none.",
    "darwin": NO_MANAGER + "To have one, log in on the screen of this Mac.",
}


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The output of ``localspec service status --json``."""

    manager: str
    file: str
    installed: bool
    current: bool
    """True if the file is the one that would be installed now"""
    other_home: str | None
    """variables of the daemon's home if the service is of another home than this one, else None"""
    enabled: bool
    state: str
    pid: int | None
    """the service's process, which may be starting or stopping"""
    log: str


def this_manager(system: str = sys.platform) -> Manager:
    """The manager of this user's services; raises :class:`ServiceUnavailable` where there is none."""
    kind = MANAGERS.get(system)
    if kind is None:
        raise ServiceUnavailable(f"services are not supported on {system} yet", NO_MANAGER.strip())
    manager = kind()
    if not manager.is_there():
        raise ServiceUnavailable(f"{manager.name} does not answer for this user", REMEDIES[system])
    return manager


def install(manager: Manager, job: Job) -> bool:
    """Write the service's file and register it; returns True if the file has changed.

    There is one service per user: raises :class:`ServiceUnavailable` also if it is that of another home.
    """
    _check_home(manager, job)
    content = manager.render(job)
    changed = _content(manager) != content
    try:
        manager.path.parent.mkdir(parents=True, exist_ok=True)
        if changed:
            home.write_private(manager.path, content.decode())
        starter = Starter(sys.prefix, str(manager.path), content.decode(), manager.start_command)
        home.write_private(home.starter_path(), msgspec.json.encode(starter).decode())
    except OSError as error:
        message = f"{error.filename or manager.path} cannot be written: {error.strerror}"
        raise ServiceUnavailable(
            message, "Make it writable and free disk space, then run `localspec service install` again."
        ) from None
    manager.register()
    return changed


def runs_as(pid: int | None, job: Job) -> bool:
    """Return True if this process runs the job as it would be installed now."""
    import psutil

    try:
        process = None if pid is None else psutil.Process(pid)
        # The first word is the interpreter, which may call itself by another name.
        return process is not None and (
            process.cmdline()[1:] == list(job.command[1:])
            and job.environment.items() <= process.environ().items()
        )
    except psutil.Error:
        return False


def uninstall(manager: Manager, job: Job) -> bool:
    """Stop the service and remove it; returns True if there was one.

    Raises :class:`ServiceUnavailable` also if it is that of another home.
    """
    _check_home(manager, job)
    home.starter_path().unlink(missing_ok=True)
    if not manager.path.exists():
        return False
    manager.remove()
    return True


def status(manager: Manager, job: Job) -> Status:
    """The status of the service in its manager."""
    running = manager.running()
    content = _content(manager)
    installed = _other_home(manager, job)
    return Status(
        manager=manager.name,
        file=str(manager.path),
        installed=content is not None,
        current=content == manager.render(job),
        other_home=None if installed is None else _shown(installed),
        enabled=content is not None and manager.enabled(),
        state=running.state,
        pid=running.pid,
        log=job.log,
    )


def _check_home(manager: Manager, job: Job) -> None:
    installed = _other_home(manager, job)
    if installed is not None:
        raise ServiceUnavailable(
            f"the installed service belongs to another home: {_shown(installed)}",
            f"Remove it first: `{as_of(installed, home_of(job.environment))} localspec service uninstall`.",
        )


def _other_home(manager: Manager, job: Job) -> dict[str, str] | None:
    """The variables of the installed service's home if it is not this home, else None."""
    content = _content(manager)
    installed = None if content is None else home_of(manager.environment(content))
    return None if installed == home_of(job.environment) else installed


def _shown(home: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in home.items()) or "the default directories"


def _content(manager: Manager) -> bytes | None:
    try:
        return manager.path.read_bytes()
    except OSError:
        return None
