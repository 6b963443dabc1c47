"""What a service runs: a command and its environment, which no login shell completes."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from localspec import home
from localspec.errors import InvalidOptions

CARRIED = (
    "LOCALSPEC_HOME",
    *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"),
    *("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "LLAMA_CACHE", "OLLAMA_MODELS"),
    *("PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"),
    *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
)
"""where files, models, libraries are, which devices may be used: no secret, nothing of one command alone"""
LISTS = {"PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"}
PATHS = {
    name for name in CARRIED if name.startswith(("LOCALSPEC_", "XDG_", "HF_H", "HUGG", "LLAMA_", "OLLAMA_"))
}


class Job(NamedTuple):
    """Absolute paths, and text that any service manager can hold."""

    command: tuple[str, ...]
    environment: dict[str, str]
    log: str


def daemon_job(environ: Mapping[str, str] = os.environ) -> Job:
    """The daemon as this command would start it. Raises :class:`InvalidOptions` for what is no text."""
    environment = {name: _absolute(name, environ[name]) for name in CARRIED if environ.get(name)}
    job = Job((sys.executable, "-m", "localspec.daemon", "--log"), environment, str(home.log_path()))
    for text in (*job.command, *job.environment.values(), job.log):
        # Control characters, and bytes that are no UTF-8: systemd refuses both, a plist the first.
        if any(unicodedata.category(character) in ("Cc", "Cs") for character in text):
            raise InvalidOptions(
                f"{ascii(text)} cannot be written into a service's file",
                "Use a path without such characters.",
            )
    return job


def _absolute(name: str, value: str) -> str:
    if name in LISTS:
        return os.pathsep.join(os.path.abspath(part) for part in value.split(os.pathsep) if part)
    return str(Path(value).expanduser().absolute()) if name in PATHS else value
