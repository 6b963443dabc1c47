"""The command of a service and its environment, to which no login shell adds anything."""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

from localspec import home, process
from localspec.errors import InvalidOptions

CARRIED = (
    "LOCALSPEC_HOME",
    *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"),
    *("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "LLAMA_CACHE", "OLLAMA_MODELS"),
    *("PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"),
    *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    *("HOME", "XDG_RUNTIME_DIR"),
)
"""variables for files, models, libraries, sockets and devices: no secrets, none for a single command; the
last two only if they differ from those of every login"""
PLACES = (
    *("HOME", "XDG_RUNTIME_DIR"),
    *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"),
)
"""variables that set the directories of localspec's own files, without LOCALSPEC_HOME"""


class Job(NamedTuple):
    """A service's command, environment and log, with absolute paths and text that every manager accepts."""

    command: tuple[str, ...]
    environment: dict[str, str]
    log: str


def daemon_job(environ: Mapping[str, str] = os.environ) -> Job:
    """The daemon as this command would start it. Raises :class:`InvalidOptions` for control characters."""
    given = {name: process.absolute(name, environ[name]) for name in CARRIED if environ.get(name)}
    environment = {name: value for name, value in given.items() if not _is_usual(name, value, given)}
    job = Job(process.python("localspec.daemon", "--log"), environment, str(home.log_path()))
    for text in (*job.command, *job.environment.values(), job.log):
        # Control characters, and bytes that are no UTF-8: systemd refuses both, a plist the first.
        if any(unicodedata.category(character) in ("Cc", "Cs") for character in text):
            raise InvalidOptions(
                f"{ascii(text)} cannot be written to a service's file: it is not text",
                "Use a path or a value without such characters.",
            )
    return job


def home_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of a job that set the directories of localspec's own files; empty: the usual ones."""
    names = ("LOCALSPEC_HOME",) if "LOCALSPEC_HOME" in environment else PLACES
    return {name: os.path.realpath(environment[name]) for name in names if name in environment}


def as_of(wanted: Mapping[str, str], ours: Mapping[str, str]) -> str:
    """The prefix ``env …`` that runs a command with ``wanted``, variables of a home, instead of ``ours``."""
    unset = (f"-u {name}" for name in ours if name not in wanted)
    return " ".join(("env", *unset, *(f"{name}={shlex.quote(value)}" for name, value in wanted.items())))


def _is_usual(name: str, value: str, given: Mapping[str, str]) -> bool:
    """Return True if a service has this variable by itself, or does not use it."""
    if name == "XDG_RUNTIME_DIR":
        return "LOCALSPEC_HOME" in given or value == f"/run/user/{os.getuid()}"
    if name == "HOME":
        with contextlib.suppress(KeyError):  # a container's user may be unknown to the system
            return value == pwd.getpwuid(os.getuid()).pw_dir
    return False
