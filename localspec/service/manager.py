"""The interface of a service manager, used by the manager's own command."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from pathlib import Path
from typing import NamedTuple

from localspec.errors import ServiceUnavailable
from localspec.process import surroundings
from localspec.service.job import Job

CALL_S = 60.0
"""seconds for a command: systemctl waits until a daemon listens, or has stopped"""


class Running(NamedTuple):
    """The manager's view of the service; ``state`` in its own words."""

    state: str
    pid: int | None


class Manager(ABC):
    """A service manager; methods that call it raise :class:`ServiceUnavailable`, except :meth:`is_there`."""

    name: str
    path: Path
    """the service's file"""
    start_command: tuple[str, ...]
    """command that starts the service if it does not run"""

    @abstractmethod
    def render(self, job: Job) -> bytes:
        """The service's file."""

    @abstractmethod
    def environment(self, content: bytes) -> dict[str, str]:
        """The job's environment in a file of :meth:`render`; empty if the file cannot be parsed."""

    @abstractmethod
    def is_there(self) -> bool:
        """Return True if the manager of this user answers."""

    @abstractmethod
    def register(self) -> None:
        """Register the service to be started at login, as its file says."""

    @abstractmethod
    def start(self) -> None:
        """Start the service now, as its file says; it must not be running."""

    @abstractmethod
    def remove(self) -> None:
        """Stop the service and delete its file."""

    @abstractmethod
    def enabled(self) -> bool:
        """Return True if the service is started at login."""

    @abstractmethod
    def running(self) -> Running:
        """The state of the service, and its process."""


def call(command: tuple[str, ...]) -> str:
    """Run a command and return its output. Raises :class:`ServiceUnavailable` with its error text."""
    shown = " ".join(command)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=CALL_S,
            **surroundings(),
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ServiceUnavailable(f"`{shown}` cannot be run: {error}") from None
    if done.returncode != 0:
        reason = done.stderr.strip() or f"exit code {done.returncode}"
        raise ServiceUnavailable(f"`{shown}` failed: {reason}")
    return done.stdout


def is_usable(command: tuple[str, ...]) -> bool:
    """Return True if a command succeeds."""
    try:
        call(command)
    except ServiceUnavailable:
        return False
    return True
