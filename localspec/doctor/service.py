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
    """The service as its manager sees it; a machine without one needs none."""
    try:
        manager = this_manager()
    except ServiceUnavailable as error:
        told = f"None can be installed: {error.message}. Every command that needs the daemon starts it."
        return Finding("service", "ok", told)
    return told_of(status(manager, daemon_job()), ends_with_session(os.environ))


def told_of(found: Status, ends: bool = False) -> Finding:
    """``ends`` says that it does so when its user logs out of this machine."""
    if not found.installed:
        told = (
            f"None is installed in {found.manager}: commands start the daemon. `localspec service install` "
            "has it started at login."
        )
        return Finding("service", "ok", told)
    if found.other_home is not None:
        told = f"The one in {found.manager} is of another home ({found.other_home}); here commands start the"
        return Finding("service", "ok", f"{told} daemon.")
    if not found.current:
        told = f"{found.file} is that of another localspec, or of another environment."
        return Finding("service", "warning", told, INSTALL)
    if not found.enabled:
        return Finding("service", "warning", "It is installed, and not started at login.", INSTALL)
    if found.state.startswith("failed"):
        told = f"{found.manager} has given it up: {found.state}."
        step = "`localspec service logs` tells why; then start it with `localspec service install`."
        return Finding("service", "problem", told, step)
    told = f"{found.manager} starts the daemon at login; now it is {found.state}."
    if ends:
        told += " It ends when you log out; `loginctl enable-linger` lets it stay."
    return Finding("service", "ok", told)


def ends_with_session(environ: Mapping[str, str], system: str = sys.platform) -> bool:
    """Whether that is so, and worth a word: on a Linux that its user reaches from elsewhere."""
    if system != "linux" or "SSH_CONNECTION" not in environ:
        return False
    try:
        return call(("loginctl", "show-user", "--property=Linger", "--value")).strip() == "no"
    except ServiceUnavailable:
        return False
