"""The service that starts the daemon at login."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from localspec.doctor.finding import Finding
from localspec.errors import ServiceUnavailable
from localspec.service.job import daemon_job
from localspec.service.manager import call
from localspec.service.service import Status, status, this_manager

INSTALL = "Run `localspec service install`; it is safe to repeat."


def service() -> Finding:
    """Check the service in its manager; a machine without a manager needs no service."""
    try:
        manager = this_manager()
    except ServiceUnavailable as error:
        sentence = f"No service can be installed: {error.message}. Commands that need the daemon start it."
        return Finding("service", "ok", sentence)
    return finding_of(status(manager, daemon_job()), ends_with_session(os.environ))


def finding_of(found: Status, ends: bool = False) -> Finding:
    """A service's status as a finding; ``ends``: True if it ends when its user logs out."""
    if not found.installed:
        sentence = (
            f"No service is installed in {found.manager}: commands start the daemon. `localspec service "
            "install` starts it at login."
        )
        return Finding("service", "ok", sentence)
    if found.other_home is not None:
        sentence = f"The service in {found.manager} belongs to another home ({found.other_home});"
        return Finding("service", "ok", f"{sentence} here commands start the daemon.")
    if not found.current:
        sentence = f"{found.file} was installed by another localspec, or with another environment."
        return Finding("service", "warning", sentence, INSTALL)
    if not found.enabled:
        return Finding("service", "warning", "The service is installed, but not started at login.", INSTALL)
    if found.state.startswith("failed"):
        sentence = f"{found.manager} no longer restarts the service: {found.state}."
        step = "`localspec service logs` shows why; then start it with `localspec service install`."
        return Finding("service", "problem", sentence, step)
    sentence = f"{found.manager} starts the daemon at login; now it is {found.state}."
    if ends:
        sentence += " It ends when you log out; `loginctl enable-linger` keeps it running."
    return Finding("service", "ok", sentence)


def ends_with_session(environ: Mapping[str, str], system: str = sys.platform) -> bool:
    """Return True if the service ends at logout: on Linux over SSH, without lingering."""
    if system != "linux" or "SSH_CONNECTION" not in environ:
        return False
    try:
        return call(("loginctl", "show-user", "--property=Linger", "--value")).strip() == "no"
    except ServiceUnavailable:
        return False
