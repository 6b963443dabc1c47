"""What localspec asks of a service manager, and how it asks: by the manager's own command."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from pathlib import Path
from typing import NamedTuple

from localspec.errors import ServiceUnavailable
from localspec.process import surroundings
from localspec.service.job import Job

CALL_S = 60.0
"""systemctl waits until a daemon listens, or has stopped"""


class Running(NamedTuple):
    """How the manager sees the service; ``state`` in its own words."""

    state: str
    pid: int | None


class Manager(ABC):
    """Methods that ask the manager, but for :meth:`is_there`, raise :class:`ServiceUnavailable`."""

    name: str
    path: Path
    """the service's file"""
    start_command: tuple[str, ...]
    """starts it where it does not run"""

    @abstractmethod
    def render(self, job: Job) -> bytes:
        """The service's file."""

    @abstractmethod
    def environment(self, content: bytes) -> dict[str, str]:
        """What a file of :meth:`render` says of the job's environment; empty where it makes no sense."""

    @abstractmethod
    def is_there(self) -> bool:
        """Whether the manager of this user answers."""

    @abstractmethod
    def register(self) -> None:
        """Have the service started at login, as its file says."""

    @abstractmethod
    def start(self) -> None:
        """Start it now, as its file says; nothing of it runs."""

    @abstractmethod
    def remove(self) -> None:
        """End it, and take its file away."""

    @abstractmethod
    def enabled(self) -> bool:
        """Whether it is started at login."""

    @abstractmethod
    def running(self) -> Running:
        """What it is doing."""


def call(command: tuple[str, ...]) -> str:
    """What a command prints. Raises :class:`ServiceUnavailable` with what it complains about."""
    said = " ".join(command)
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
        raise ServiceUnavailable(f"`{said}` cannot be run: {error}") from None
    if done.returncode != 0:
        complaint = done.stderr.strip() or f"it exits with {done.returncode}"
        raise ServiceUnavailable(f"`{said}` fails: {complaint}")
    return done.stdout


def is_usable(command: tuple[str, ...]) -> bool:
    """Whether a command does what it should."""
    try:
        call(command)
    except ServiceUnavailable:
        return False
    return True
