"""Records, which are small JSON files, of what was learnt about models on this machine, and about drafts with
their targets, so that it is known before either is loaded.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from localspec import home
from localspec.errors import LocalspecError
from localspec.models.machine import build_for, machine_name
from localspec.models.model import Model

log = logging.getLogger(__name__)

FORMAT = 8
SPOILT = (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""errors of reading a record with arbitrary content"""
ENOUGH = 64
"""drafted tokens after which the result of a pair counts"""
HOPELESS = 0.02
"""share of accepted tokens below which no draft length saves time"""


class LearntState(Protocol):
    """State that a :class:`Record` can write and read again."""

    def state(self) -> dict[str, Any]:
        """The state as JSON values."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned. Raises ValueError, KeyError or TypeError for anything else."""


class Record:
    """One file: what was learnt of ``what`` on this kind of machine. ``what`` names the device and the
    build of the library where the result depends on them; a record of another one is not read. Where the
    file cannot be read or written, only what was learnt is lost."""

    def __init__(self, directory: Path, what: str, learnt: LearntState) -> None:
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
        learnt = json.dumps({"format": FORMAT, "of": self._key, "learnt": self._learnt.state()})
        if learnt == self._written:
            return
        self._written = learnt
        with contextlib.suppress(OSError):
            home.write_private(self._path, learnt)


def learnt_dir() -> Path:
    """The directory of the records; raises :class:`LocalspecError` where it cannot be made."""
    return home.private_dir(home.cache_dir() / "learnt")


class PairResults(NamedTuple):
    """Counts of ``drafted`` tokens and of those ``accepted``; ``gain`` is the expected speed with the best
    drafts as a multiple of plain decoding, 1 where none saves time; None: the cost of steps is not known."""

    drafted: int = 0
    accepted: int = 0
    gain: float | None = None

    @property
    def is_known(self) -> bool:
        """True if enough was drafted to judge; until then ``gain`` is that of most drafts."""
        return self.drafted >= ENOUGH

    @property
    def loses(self) -> bool:
        hopeless = self.accepted < HOPELESS * self.drafted
        return self.is_known and (hopeless or self.gain == 1.0)

    @property
    def wins(self) -> bool:
        return self.is_known and self.gain is not None and not self.loses


class PairRecord:
    """A :class:`PairResults` as it is written; see :class:`LearntState`."""

    def __init__(self) -> None:
        self.tried = PairResults()

    def state(self) -> dict[str, Any]:
        return self.tried._asdict()

    def restore(self, state: Mapping[str, Any]) -> None:
        drafted, accepted, gain = (state[field] for field in PairResults._fields)
        if not (type(drafted) is type(accepted) is int and 0 <= accepted <= drafted):
            raise ValueError("more tokens accepted than drafted")
        if gain is not None and not 1.0 <= (gain := float(gain)) < 1e3:
            raise ValueError("the gain is not from 1 to 1000")
        self.tried = PairResults(drafted, accepted, gain)


def name_of_pair(target: Model, draft: Model, nodes: Sequence[str] = ()) -> str:
    """The name of a pair's record: other files at the same paths, another build of the library that runs
    them, or other nodes that share the target, count as another pair."""
    pair = " and ".join(map(name_of_model, (target, draft)))
    return f"pair of {pair} by {build_for(target.format)}{over(nodes)}"


def name_of_model(model: Model) -> str:
    """The name of a model in records: another file at its place is another model."""
    return f"{model.place!r}, {model.weight_bytes} bytes"


def over(nodes: Sequence[str]) -> str:
    """The nodes that share a model, in the name of a record."""
    return "".join(f", and {node}" for node in nodes)


def read_pair_results(target: Model, draft: Model, nodes: Sequence[str] = ()) -> PairResults:
    """The recorded results of engines with these two models, the target shared by ``nodes``."""
    record = PairRecord()
    with contextlib.suppress(LocalspecError, OSError):  # without a cache directory there are no results
        Record(learnt_dir(), name_of_pair(target, draft, nodes), record).read()
    return record.tried
