"""What an engine learns and keeps: the n-gram memory, what forwards cost, how often drafts are right."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from localspec.backends.base import ANY_WIDTH, Backend
from localspec.backends.rounding import (
    PRESUMED,
    SHORT_PIECE,
    WIDTHS,
    Rounding,
    measure_rounding,
    set_rounding,
)
from localspec.engine.processor import machine_name
from localspec.engine.saved import Saved
from localspec.home import write_private
from localspec.memory.memory import Memory
from localspec.speculation.costs import CostCurve
from localspec.speculation.survival import Calibration

log = logging.getLogger(__name__)

FORMAT = 5
SPOILT = (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""what reading a record that somebody else wrote may raise"""
DRAFT_S = 0.002
"""what a draft model's step is taken to cost before one was seen: little, so that it is tried"""


SPEED_CONTEXT = 512
"""tokens of context behind the steps by which models are compared"""


class Learnt(Protocol):
    """What can be written down and read again."""

    def state(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state` gave. Raises ValueError, KeyError or TypeError for anything else."""


class KnownRounding:
    """How far rounding moves the target's logits, once it was measured to the end."""

    def __init__(self) -> None:
        self.measured: Rounding | None = None

    def state(self) -> dict[str, Any]:
        return self.measured._asdict() if self.measured else {}

    def restore(self, state: Mapping[str, Any]) -> None:
        if not state:
            return
        margin, drift = float(state["margin_bound"]), float(state["drift_bound"])
        if not (0.0 <= margin < math.inf and 0.0 <= drift < math.inf):
            raise ValueError("no bounds")
        width = int(state["exact_width"])
        if not (1 <= width <= max(WIDTHS) or (width == ANY_WIDTH and margin == drift == 0.0)):
            raise ValueError("no width that is probed")
        piece, batches = int(state["exact_piece"]), state["exact_batches"] is True
        if piece not in (1, SHORT_PIECE, ANY_WIDTH):
            raise ValueError("no piece that is probed")
        self.measured = Rounding(margin, drift, width, exact_piece=piece, exact_batches=batches)


class KnownSpeed:
    """Seconds that a plain step takes, by a model's path: what decides between formats before one is
    loaded. ``costs`` is where it comes from."""

    def __init__(self, costs: CostCurve | None = None) -> None:
        self.seconds: float | None = None
        self._costs = costs

    def state(self) -> dict[str, Any]:
        measured = self._costs.measured(SPEED_CONTEXT).get(1) if self._costs else None
        seconds = measured or self.seconds
        return {"seconds": seconds} if seconds else {}

    def restore(self, state: Mapping[str, Any]) -> None:
        seconds = float(state.get("seconds", 0.0))
        if seconds and not 1e-7 <= seconds < 1e3:
            raise ValueError("no time of a step")
        self.seconds = seconds or None


def known_speed(directory: Path, model: Path) -> float | None:
    """What an engine with that model once measured, in seconds."""
    speed = KnownSpeed()
    _Record(directory, _speed_of(model), speed).read()
    return speed.seconds


def _speed_of(model: Path) -> str:
    return f"speed of {os.fsencode(model)!r}"


class Learning:
    """The learnt of one pair of models.

    ``directory`` keeps costs and calibration between runs, by machine, backend version and model; None:
    they end with the engine. ``path`` is the target's. A file that cannot be read or written costs what
    was learnt, nothing else.
    """

    def __init__(
        self,
        target: Backend,
        draft: Backend | None,
        *,
        directory: Path | None = None,
        path: Path | None = None,
        memory: Memory | None = None,
        chats: Saved | None = None,
    ) -> None:
        self.memory, self.chats = memory, chats
        self.costs = CostCurve(target.description)
        self.draft_costs = CostCurve(draft.description, unknown_s=DRAFT_S) if draft is not None else None
        self.calibration = Calibration()
        self.rounding = KnownRounding()
        self._records: list[_Record] = []
        if directory is not None:
            pair = f"{target.description} + {draft.description if draft else 'none'}"
            self._keep(directory, f"cost of {target.description}", self.costs)
            limits = target.capabilities
            probed = f"{limits.n_ctx} cells, at most {limits.max_batch} tokens at once"
            self._keep(directory, f"rounding of {target.description}, {probed}", self.rounding)
            if draft is not None and self.draft_costs is not None:
                self._keep(directory, f"cost of {draft.description}", self.draft_costs)
            self._keep(directory, f"calibration of {pair}", self.calibration)
            if path is not None:
                self._keep(directory, _speed_of(path), KnownSpeed(self.costs))

    @property
    def keeps(self) -> bool:
        """Whether what is learnt outlives the engine."""
        return bool(self._records)

    def _keep(self, directory: Path, what: str, learnt: Learnt) -> None:
        record = _Record(directory, what, learnt)
        self._records.append(record)
        record.read()

    def know_rounding(self, target: Backend) -> None:
        """Let the target say how it rounds: as it was found once, or as a short probe finds it now."""
        if not target.capabilities.obstacle:
            if self.rounding.measured is None:
                self.rounding.measured = measure_rounding(target)
            set_rounding(target, self.rounding.measured or PRESUMED)

    def save(self) -> None:
        """Write what has changed."""
        for record in self._records:
            record.write()

    def close(self) -> None:
        """Write everything, the texts that wait to be learnt too."""
        self.save()
        if self.memory is not None:
            self.memory.close()


class _Record:
    """A small file of JSON that holds what was learnt."""

    def __init__(self, directory: Path, what: str, learnt: Learnt) -> None:
        self._learnt = learnt
        self._key = f"{what} on {machine_name()}"
        name = hashlib.sha256(self._key.encode()).hexdigest()[:16]
        self._path = directory / f"{name}.json"
        self._written = ""

    def read(self) -> None:
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
        learnt = json.dumps({"format": FORMAT, "of": self._key, "learnt": self._learnt.state()})
        if learnt == self._written:
            return
        self._written = learnt
        with contextlib.suppress(OSError):
            write_private(self._path, learnt)
