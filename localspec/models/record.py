"""Small JSON files of what was learnt about models on this machine."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from localspec import home
from localspec.models.machine import machine_name

log = logging.getLogger(__name__)

FORMAT = 8
SPOILT = (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""errors of reading a record with arbitrary content"""


class Learnt(Protocol):
    """State that a :class:`Record` can write and read again."""

    def state(self) -> dict[str, Any]:
        """The state as JSON values."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned. Raises ValueError, KeyError or TypeError for anything else."""


class Record:
    """One file: what was learnt of ``what`` on this kind of machine. ``what`` names the device and the build
    of the library where the result depends on them; a record of another one is not read.

    Where the file cannot be read or written, only what was learnt is lost.
    """

    def __init__(self, directory: Path, what: str, learnt: Learnt) -> None:
        self._learnt = learnt
        self._key = f"{what} on {machine_name()}"
        name = hashlib.sha256(self._key.encode()).hexdigest()[:16]
        self._path = directory / f"{name}.json"
        self._written = ""

    def read(self) -> None:
        """Restore the written state, if the file can be used."""
        try:
            content = self._path.read_text(encoding="utf-8")
            document = json.loads(content)
            if document["format"] == FORMAT and document["of"] == self._key:
                self._learnt.restore(document["learnt"])
        except FileNotFoundError:
            return
        except SPOILT as error:
            log.info("%s cannot be used and will be replaced: %s", self._path, error)

    def write(self) -> None:
        """Write the state if it has changed."""
        learnt = json.dumps({"format": FORMAT, "of": self._key, "learnt": self._learnt.state()})
        if learnt == self._written:
            return
        self._written = learnt
        with contextlib.suppress(OSError):
            home.write_private(self._path, learnt)


def learnt_dir() -> Path:
    """The directory of the records; raises :class:`LocalspecError` where it cannot be made."""
    return home.private_dir(home.cache_dir() / "learnt")
