"""Small files of JSON that hold what was learnt about models on this machine."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from localspec import home
from localspec.models.processor import machine_name

log = logging.getLogger(__name__)

FORMAT = 8
SPOILT = (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""what reading a record that somebody else wrote may raise"""


class Learnt(Protocol):
    """What can be written down and read again."""

    def state(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state` gave. Raises ValueError, KeyError or TypeError for anything else."""


class Record:
    """One of the files: what was learnt of ``what`` on this kind of machine. ``what`` names the device and
    the build of the library where the result depends on them; of another one nothing is read.

    A file that cannot be read or written costs what was learnt, nothing else.
    """

    def __init__(self, directory: Path, what: str, learnt: Learnt) -> None:
        self._learnt = learnt
        self._key = f"{what} on {machine_name()}"
        name = hashlib.sha256(self._key.encode()).hexdigest()[:16]
        self._path = directory / f"{name}.json"
        self._written = ""

    def read(self) -> None:
        """Restore what was written, if that is possible."""
        try:
            content = self._path.read_text(encoding="utf-8")
            document = json.loads(content)
            if document["format"] == FORMAT and document["of"] == self._key:
                self._learnt.restore(document["learnt"])
        except FileNotFoundError:
            return
        except SPOILT as error:
            log.warning("%s cannot be used: %s", self._path, error)

    def write(self) -> None:
        """Write it down where it has changed."""
        learnt = json.dumps({"format": FORMAT, "of": self._key, "learnt": self._learnt.state()})
        if learnt == self._written:
            return
        self._written = learnt
        with contextlib.suppress(OSError):
            home.write_private(self._path, learnt)


def learnt_dir() -> Path:
    """Where they are kept; raises :class:`LocalspecError` where there can be none."""
    return home.private_dir(home.cache_dir() / "learnt")
