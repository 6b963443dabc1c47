"""The service that starts the daemon at login."""

from __future__ import annotations

from collections.abc import Iterator

from localspec.doctor.finding import Finding
from localspec.errors import ServiceUnavailable
from localspec.service.service import Status, daemon_job, status, this_manager

INSTALL = "Run `localspec service install`; it is safe to repeat."


def service() -> Iterator[Finding]:
    """Check the service in its manager; a machine without a manager needs no service."""
    try:
        manager = this_manager()
    except ServiceUnavailable as error:
        sentence = f"No service can be installed: {error.message}. Commands that need the daemon start it."
        yield Finding("service", "ok", sentence)
        return
    yield finding_of(status(manager, daemon_job()))


def finding_of(found: Status) -> Finding:
    """A service's status as a finding."""
    if not found.installed or found.other_home is not None:
        sentence = "No service is installed for this home: commands start the daemon."
        return Finding("service", "ok", f"{sentence} `localspec service install` starts it at login.")
    if not found.current:
        sentence = f"{found.file} was installed by another localspec, or with another environment."
        return Finding("service", "warning", sentence, INSTALL)
    if found.state.startswith("failed"):
        sentence = f"{found.manager} no longer restarts the service: {found.state}."
        step = "`localspec daemon logs` shows why; then start it with `localspec service install`."
        return Finding("service", "problem", sentence, step)
    return Finding("service", "ok", f"{found.manager} starts the daemon at login; now it is {found.state}.")
