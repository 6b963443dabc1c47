"""What a service runs: a command and its environment, which no login shell completes."""

from __future__ import annotations

import contextlib
import os
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
"""where files, models, libraries, sockets are, which devices may be used: no secret, nothing of one command
alone; the last two only where they are not what every login gets"""
PLACES = (
    *("HOME", "XDG_RUNTIME_DIR"),
    *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"),
)
"""what decides where localspec's own files are, where LOCALSPEC_HOME does not"""


class Job(NamedTuple):
    """Absolute paths, and text that any service manager can hold."""

    command: tuple[str, ...]
    environment: dict[str, str]
    log: str


def daemon_job(environ: Mapping[str, str] = os.environ) -> Job:
    """The daemon as this command would start it. Raises :class:`InvalidOptions` for what is no text."""
    said = {name: process.absolute(name, environ[name]) for name in CARRIED if environ.get(name)}
    environment = {name: value for name, value in said.items() if not _is_usual(name, value, said)}
    job = Job(process.python("localspec.daemon", "--log"), environment, str(home.log_path()))
    for text in (*job.command, *job.environment.values(), job.log):
        # Control characters, and bytes that are no UTF-8: systemd refuses both, a plist the first.
        if any(unicodedata.category(character) in ("Cc", "Cs") for character in text):
            raise InvalidOptions(
                f"{ascii(text)} cannot be written into a service's file",
                "Use a path without such characters.",
            )
    return job


def home_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Of a job's environment, what decides where localspec's own files are; nothing: the usual places."""
    names = ("LOCALSPEC_HOME",) if "LOCALSPEC_HOME" in environment else PLACES
    return {name: os.path.realpath(environment[name]) for name in names if name in environment}


def as_of(theirs: Mapping[str, str], ours: Mapping[str, str]) -> str:
    """What to write before a command so that it is one of their home, and not of ours."""
    unset = (f"-u {name}" for name in ours if name not in theirs)
    return " ".join(("env", *unset, *(f"{name}={shlex.quote(value)}" for name, value in theirs.items())))


def _is_usual(name: str, value: str, said: Mapping[str, str]) -> bool:
    """Whether a service has this by itself, or has no use for it."""
    if name == "XDG_RUNTIME_DIR":
        return "LOCALSPEC_HOME" in said or value == f"/run/user/{os.getuid()}"
    if name == "HOME":
        import pwd  # not on Windows, which has no services yet

        with contextlib.suppress(KeyError):  # a container's user, whom the system does not know
            return value == pwd.getpwuid(os.getuid()).pw_dir
    return False
