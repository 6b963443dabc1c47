"""A launchd agent of the user, on macOS."""

from __future__ import annotations

import os
import plistlib
import re
import time
from contextlib import suppress
from xml.parsers.expat import ExpatError

from localspec import home
from localspec.errors import ServiceUnavailable
from localspec.service.job import Job
from localspec.service.manager import Manager, Running, call, is_usable

LABEL = "localspec.daemon"
STOP_S = 20
UMASK = 0o077
GONE_S = 10.0
STEP_S = 0.1


def plist(job: Job) -> bytes:
    """The agent's file; output of the daemon before it opens its log goes to the log as well."""
    return plistlib.dumps(
        {
            "Label": LABEL,
            "ProgramArguments": list(job.command),
            "EnvironmentVariables": job.environment,
            "WorkingDirectory": "/",
            "Umask": UMASK,
            "RunAtLoad": True,
            # Again after a crash, not after `localspec daemon stop`.
            "KeepAlive": {"SuccessfulExit": False},
            "ExitTimeOut": STOP_S,
            # Otherwise macOS limits its time and memory as those of a background task.
            "ProcessType": "Interactive",
            "StandardOutPath": job.log,
            "StandardErrorPath": job.log,
        },
        sort_keys=False,
    )


class Launchd(Manager):
    """The agents of this user's session, as ``launchctl`` reaches them."""

    name = "launchd"

    def __init__(self) -> None:
        self.path = home.of_user() / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        self._domain = f"gui/{os.getuid()}"
        self._target = f"{self._domain}/{LABEL}"
        self.start_command = ("launchctl", "kickstart", self._target)

    def render(self, job: Job) -> bytes:
        return plist(job)

    def environment(self, content: bytes) -> dict[str, str]:
        with suppress(ValueError, KeyError, TypeError, ExpatError):
            variables = plistlib.loads(content)["EnvironmentVariables"]
            return {name: value for name, value in variables.items() if isinstance(value, str)}
        return {}

    def is_there(self) -> bool:
        return is_usable(("launchctl", "print", self._domain))

    def register(self) -> None:
        """Enable the agent, also if it was disabled: those of the directory are loaded at login."""
        call(("launchctl", "enable", self._target))

    def start(self) -> None:
        """Load the agent anew: launchd keeps the file's earlier content."""
        self._unload()
        call(("launchctl", "bootstrap", self._domain, str(self.path)))

    def remove(self) -> None:
        self._unload()
        self.path.unlink(missing_ok=True)

    def enabled(self) -> bool:
        disabled = call(("launchctl", "print-disabled", self._domain))
        return re.search(rf'"{re.escape(LABEL)}" => (true|disabled)', disabled) is None

    def running(self) -> Running:
        if not self._is_loaded():
            return Running("not loaded", None)
        shown = call(("launchctl", "print", self._target))
        state, pid = (re.search(rf"^\s*{name} = (.+)$", shown, re.M) for name in ("state", "pid"))
        return Running(state[1] if state else "unknown", int(pid[1]) if pid else None)

    def _unload(self) -> None:
        """Unload the agent and wait: it is still ending when bootout returns."""
        if self._is_loaded():
            is_usable(("launchctl", "bootout", self._target))
        deadline = time.monotonic() + GONE_S + STOP_S
        while self._is_loaded():
            if time.monotonic() > deadline:
                raise ServiceUnavailable(
                    f"launchd did not end the agent {LABEL} within {GONE_S + STOP_S:.0f} s",
                    f"Run launchctl bootout {self._target}",
                )
            time.sleep(STEP_S)

    def _is_loaded(self) -> bool:
        return is_usable(("launchctl", "print", self._target))
