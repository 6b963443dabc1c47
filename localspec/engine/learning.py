"""What an engine learns and keeps: the n-gram memory, what forwards cost, how often drafts are right."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from localspec.backends.base import ANY_WIDTH, Backend
from localspec.backends.rounding import (
    PRESUMED,
    SHORT_PIECE,
    WIDTHS,
    Rounding,
    measure_rounding,
    set_rounding,
)
from localspec.engine.saved import Saved
from localspec.memory.memory import Memory
from localspec.models.model import Model
from localspec.models.record import Learnt, Record
from localspec.models.tried import KnownSpeed, Tried, TriedRecord, name_of_pair, name_of_speed
from localspec.protocol.results import Stats
from localspec.speculation.costs import CostCurve
from localspec.speculation.draft_model import DraftModel
from localspec.speculation.length import best_length
from localspec.speculation.survival import BUCKETS, Calibration

DRAFT_S = 0.002
"""what a draft model's step is taken to cost before one was seen: little, so that it is tried"""
SPEED_CONTEXT = 512
"""tokens of context behind the steps by which models are compared"""
NOBODY = -1
"""a request that has shown nothing of its own"""


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
        if margin != drift:
            raise ValueError("no bounds of this version: each was measured by itself")
        width = int(state["exact_width"])
        if not (1 <= width <= max(WIDTHS) if margin else width == ANY_WIDTH):
            raise ValueError("no width that is probed")
        piece, batches = int(state["exact_piece"]), state["exact_batches"] is True
        if piece not in (1, SHORT_PIECE, ANY_WIDTH):
            raise ValueError("no piece that is probed")
        self.measured = Rounding(
            margin,
            drift,
            width,
            exact_piece=piece,
            exact_batches=batches,
            even_short=state["even_short"] is True,
            even_long=state["even_long"] is True,
        )


class KnownPair(TriedRecord):
    """How the draft model fares with this target: what later decides whether it is paired again."""

    def __init__(self, costs: CostCurve, draft_costs: CostCurve, calibration: Calibration) -> None:
        super().__init__()
        self._costs, self._draft_costs, self._calibration = costs, draft_costs, calibration

    def count(self, drafted: int, accepted: int) -> None:
        """A request has ended."""
        before = self.tried
        self.tried = Tried(before.drafted + drafted, before.accepted + accepted, before.gain)

    def state(self) -> dict[str, Any]:
        if self._costs.knows(2, SPEED_CONTEXT) and self._draft_costs.knows(1, SPEED_CONTEXT):
            self.tried = self.tried._replace(gain=self._gain())
        return super().state() | {"failure": None}  # it is loaded

    def _gain(self) -> float:
        """Of drafts of the best length, as the controller weighs them; 1 where the best is none."""
        step_s = self._draft_costs.seconds(1, SPEED_CONTEXT)
        line = self._costs.line(SPEED_CONTEXT)
        seconds = [line[k + 1] + k * step_s for k in range(BUCKETS + 1)]
        survival = self._calibration.by_position(DraftModel.name).curve(NOBODY, range(BUCKETS))
        k, rate = best_length(survival, seconds)
        return rate * seconds[0] if k else 1.0


class Learning:
    """The learnt of one pair of models.

    ``directory`` keeps costs and calibration between runs, by machine, backend version and model; None:
    they end with the engine. ``models`` are the target and the draft. A file that cannot be read or
    written costs what was learnt, nothing else.
    """

    def __init__(
        self,
        target: Backend,
        draft: Backend | None,
        *,
        directory: Path | None = None,
        models: tuple[Model, Model | None] | None = None,
        memory: Memory | None = None,
        chats: Saved | None = None,
    ) -> None:
        self.memory, self.chats = memory, chats
        self.costs = CostCurve(target.description)
        self.draft_costs = CostCurve(draft.description, unknown_s=DRAFT_S) if draft is not None else None
        self.calibration = Calibration()
        self.rounding = KnownRounding()
        self.pair: KnownPair | None = None
        self._records: list[Record] = []
        if directory is not None:
            pair = f"{target.description} + {draft.description if draft else 'none'}"
            self._keep(directory, f"cost of {target.description}", self.costs)
            limits = target.capabilities
            probed = f"{limits.n_ctx} cells, at most {limits.max_batch} tokens at once"
            self._keep(directory, f"rounding of {target.description}, {probed}", self.rounding)
            if draft is not None and self.draft_costs is not None:
                self._keep(directory, f"cost of {draft.description}", self.draft_costs)
            self._keep(directory, f"calibration of {pair}", self.calibration)
            if models is not None:
                self._know(directory, *models)

    @property
    def keeps(self) -> bool:
        """Whether what is learnt outlives the engine."""
        return bool(self._records)

    def _keep(self, directory: Path, what: str, learnt: Learnt) -> None:
        record = Record(directory, what, learnt)
        self._records.append(record)
        record.read()

    def _know(self, directory: Path, target: Model, draft: Model | None) -> None:
        """Keep what is known of the models before they are loaded."""
        measured = KnownSpeed(lambda: self.costs.measured(SPEED_CONTEXT).get(1))
        self._keep(directory, name_of_speed(target), measured)
        if draft is not None and self.draft_costs is not None:
            self.pair = KnownPair(self.costs, self.draft_costs, self.calibration)
            self._keep(directory, name_of_pair(target, draft), self.pair)

    def count(self, stats: Stats) -> None:
        """A request has ended: how its drafts fared is kept for the next pairing."""
        share = stats.proposers.get(DraftModel.name)
        if share is not None and self.pair is not None:
            self.pair.count(share.drafted, share.accepted)

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
