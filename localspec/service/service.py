"""The service of this user: a unit of systemd, or on macOS an agent of launchd.

No socket activation: a daemon listens at two addresses, one of which changes when it is taken, and writes
them to a file; clients start it. A second way to start it would have to agree with all of that.
"""

from __future__ import annotations

import os
import plistlib
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from localspec import home, process
from localspec.client.discovery import Starter
from localspec.errors import ExitCode, ServiceUnavailable

UNIT = "localspec.service"
LABEL = "localspec.daemon"
CALL_S = 60.0
"""seconds for a command: systemctl waits until a daemon listens, or has stopped"""
DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
CARRIED = (*process.PLACES, *process.LISTS, *DEVICES)
"""variables for files, models, libraries, sockets and devices: no secrets, none for a single command"""
NO_MANAGER = (
    "The daemon needs no service: every command that needs it starts it. To have one, log in (or ssh) to a "
    "machine with a systemd for users (su and most containers start none), or on the screen of a Mac."
)
TEMPLATE = f"""\
# Written by `localspec service install`; changes of yours belong into `systemctl --user edit {UNIT}`.
[Unit]
Description=localspec: local models, speculating
StartLimitIntervalSec=60
StartLimitBurst=5

[Service]
Type=notify
ExecStart=:{{command}}
{{environment}}\
WorkingDirectory=/
UMask=0077
Restart=on-failure
RestartSec=2
# A broken configuration does not mend itself.
RestartPreventExitStatus={ExitCode.USAGE:d}
# The daemon ends its workers; one that the kernel kills for memory costs no more than its own requests.
KillMode=mixed
TimeoutStopSec=20
OOMPolicy=continue
# No namespaces, which not every user's manager can make; code for a GPU is compiled while the daemon runs.
NoNewPrivileges=yes
LockPersonality=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native

[Install]
WantedBy=default.target
"""


class ServiceJob(NamedTuple):
    """A service's command, environment and log, with absolute paths."""

    command: tuple[str, ...]
    environment: dict[str, str]
    log: str


def daemon_job(environ: Mapping[str, str] = os.environ) -> ServiceJob:
    """The daemon as this command would start it."""
    environment = {name: process.absolute(name, environ[name]) for name in CARRIED if environ.get(name)}
    return ServiceJob(process.python("localspec.daemon", "--log"), environment, str(home.log_path()))


def unit(job: ServiceJob) -> str:
    """The file of systemd. ``ExecStart=:`` keeps dollar signs as they are."""
    variables = (f"Environment={quote_word(f'{name}={value}')}\n" for name, value in job.environment.items())
    return TEMPLATE.format(command=" ".join(map(quote_word, job.command)), environment="".join(variables))


def quote_word(text: str) -> str:
    """A word in systemd's syntax: C-like quotes, and doubled percent signs."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def plist(job: ServiceJob) -> str:
    """The file of launchd; output of the daemon before it opens its log goes to the log as well."""
    agent = {
        "Label": LABEL,
        "ProgramArguments": list(job.command),
        "EnvironmentVariables": job.environment,
        "WorkingDirectory": "/",
        "Umask": 0o077,
        "RunAtLoad": True,
        # Again after a crash, not after `localspec daemon stop`.
        "KeepAlive": {"SuccessfulExit": False},
        "ExitTimeOut": 20,
        # Otherwise macOS limits its time and memory as those of a background task.
        "ProcessType": "Interactive",
        "StandardOutPath": job.log,
        "StandardErrorPath": job.log,
    }
    return plistlib.dumps(agent, sort_keys=False).decode()


class Systemd:
    """The user's systemd. All methods raise :class:`ServiceUnavailable` if it refuses."""

    name = "systemd"
    render = staticmethod(unit)
    probe = ("systemctl", "--user", "show", "--property=Version")
    start_command = ("systemctl", "--user", "start", UNIT)

    def __init__(self) -> None:
        config = os.environ.get("XDG_CONFIG_HOME") or home.of_user() / ".config"
        self.path = Path(config, "systemd", "user", UNIT)

    def register(self) -> None:
        """Have the service started at login, as its file says."""
        call("systemctl", "--user", "daemon-reload")
        call("systemctl", "--user", "enable", UNIT)

    def start(self) -> None:
        """Start the service now, as its file says; earlier crashes no longer count."""
        succeeds("systemctl", "--user", "reset-failed", UNIT)  # fails for a unit that never failed
        call("systemctl", "--user", "restart", UNIT)

    def remove(self) -> None:
        call("systemctl", "--user", "disable", "--now", UNIT)
        self.path.unlink(missing_ok=True)
        call("systemctl", "--user", "daemon-reload")

    def running(self) -> tuple[str, int | None]:
        """The state in systemd's own words, and the process."""
        shown = call("systemctl", "--user", "show", UNIT, "--property=ActiveState,SubState,Result,MainPID")
        found = dict(line.partition("=")[::2] for line in shown.splitlines())
        state = f"{found['ActiveState']} ({found['SubState']})"
        if found["Result"] != "success":
            state += f", last ended with {found['Result']}"
        return state, int(found["MainPID"]) or None


class Launchd:
    """This user's agent, of one session. All methods raise :class:`ServiceUnavailable` if launchd refuses."""

    name = "launchd"
    render = staticmethod(plist)

    def __init__(self) -> None:
        self.path = home.of_user() / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        self._domain = f"gui/{os.getuid()}"
        self._target = f"{self._domain}/{LABEL}"
        self._print = ("launchctl", "print", self._target)
        self.probe = ("launchctl", "print", self._domain)
        self.start_command = ("launchctl", "kickstart", self._target)

    def register(self) -> None:
        """Enable the agent, also if it was disabled: those of the directory are loaded at login."""
        call("launchctl", "enable", self._target)

    def start(self) -> None:
        """Load the agent anew: launchd keeps the file's earlier content."""
        self._unload()
        call("launchctl", "bootstrap", self._domain, str(self.path))

    def remove(self) -> None:
        self._unload()
        self.path.unlink(missing_ok=True)

    def running(self) -> tuple[str, int | None]:
        """The state in launchd's own words, and the process."""
        if not succeeds(*self._print):
            return "not loaded", None
        shown = call(*self._print)
        state, pid = (re.search(rf"^\s*{name} = (.+)$", shown, re.M) for name in ("state", "pid"))
        return state[1] if state else "unknown", int(pid[1]) if pid else None

    def _unload(self) -> None:
        """Unload the agent and wait: it is still ending when bootout returns."""
        succeeds("launchctl", "bootout", self._target)
        deadline = time.monotonic() + CALL_S
        while succeeds(*self._print) and time.monotonic() < deadline:
            time.sleep(0.1)


def call(*command: str) -> str:
    """Run a command and return its output. Raises :class:`ServiceUnavailable` with its error text."""
    try:
        done = subprocess.run(
            command, input="", capture_output=True, errors="replace", timeout=CALL_S, **process.surroundings()
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ServiceUnavailable(f"`{' '.join(command)}` cannot be run: {error}") from None
    if done.returncode != 0:
        reason = done.stderr.strip() or f"exit code {done.returncode}"
        raise ServiceUnavailable(f"`{' '.join(command)}` failed: {reason}")
    return done.stdout


def succeeds(*command: str) -> bool:
    try:
        call(*command)
    except ServiceUnavailable:
        return False
    return True


Manager = Systemd | Launchd
MANAGERS: dict[str, type[Manager]] = {"linux": Systemd, "darwin": Launchd}


class ServiceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The output of ``localspec service status --json``."""

    manager: str
    file: str
    installed: bool
    current: bool
    """True if the file is the one that would be installed now"""
    other_home: bool
    """True if it was installed with another LOCALSPEC_HOME than this one"""
    state: str
    pid: int | None
    log: str


def this_manager(system: str = sys.platform) -> Manager:
    """The manager of this user's services; raises :class:`ServiceUnavailable` where there is none."""
    if system not in MANAGERS:
        raise ServiceUnavailable(f"services are not supported on {system} yet", NO_MANAGER)
    manager = MANAGERS[system]()
    if not succeeds(*manager.probe):
        raise ServiceUnavailable(f"{manager.name} does not answer for this user", NO_MANAGER)
    return manager


def install(manager: Manager, job: ServiceJob) -> None:
    """Write the service's file and register it. There is one service per user. Raises
    :class:`ServiceUnavailable` also if it is that of another home."""
    _of_this_home(manager, job)
    content = manager.render(job)
    starter = Starter(sys.prefix, str(manager.path), content, manager.start_command)
    try:
        manager.path.parent.mkdir(parents=True, exist_ok=True)
        home.write_private(manager.path, content)
        home.write_private(home.starter_path(), msgspec.json.encode(starter).decode())
    except OSError as error:
        message = f"{error.filename or manager.path} cannot be written: {error.strerror}"
        raise ServiceUnavailable(message, "Make it writable and run the command again.") from None
    manager.register()


def uninstall(manager: Manager, job: ServiceJob) -> bool:
    """Stop the service and remove it; returns True if there was one. Raises :class:`ServiceUnavailable`
    also if it is that of another home."""
    found = _of_this_home(manager, job)
    if found.installed:
        manager.remove()
    home.starter_path().unlink(missing_ok=True)
    return found.installed


def status(manager: Manager, job: ServiceJob) -> ServiceStatus:
    state, pid = manager.running()
    installed = manager.path.exists()
    content = manager.path.read_text(encoding="utf-8", errors="replace") if installed else ""
    return ServiceStatus(
        manager=manager.name,
        file=str(manager.path),
        installed=installed,
        current=content == manager.render(job),
        other_home=installed and not home.starter_path().exists(),
        state=state,
        pid=pid,
        log=job.log,
    )


def _of_this_home(manager: Manager, job: ServiceJob) -> ServiceStatus:
    """The status of the service, which must not be of another home."""
    found = status(manager, job)
    if found.other_home:
        raise ServiceUnavailable(
            f"{found.file} is the service of another LOCALSPEC_HOME",
            "Run `localspec service uninstall` with that LOCALSPEC_HOME first, or remove the file.",
        )
    return found
