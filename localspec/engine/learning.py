"""The results that an engine learns and keeps: n-gram memory, costs of forwards, accuracy of drafts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localspec.backends.base import PRESUMED, WIDTHS, Backend, Rounding, measure_rounding, set_rounding
from localspec.engine.prefixes import Saved
from localspec.memory.memory import Memory
from localspec.memory.ngrams import MemoryText
from localspec.models.model import Model
from localspec.models.records import (
    LearntState,
    PairRecord,
    PairResults,
    Record,
    name_of_model,
    name_of_pair,
    over,
)
from localspec.protocol.requests import Stats
from localspec.speculation.controller import BUCKETS, Calibration, Survival, best_length
from localspec.speculation.costs import CostCurve
from localspec.speculation.draft_model import DraftModel, name_accuracy

DRAFT_S = 0.002
"""assumed seconds of a draft model's step before one was measured: few, so that it is tried"""
SPEED_CONTEXT = 512
"""tokens of context before the steps by which models are compared"""
NO_REQUEST = -1
"""id of no request, for averages over all"""


class KnownRounding:
    """The forwards that round as plain decoding does; None until the check has ended."""

    def __init__(self) -> None:
        self.measured: Rounding | None = None

    def state(self) -> dict[str, Any]:
        return self.measured._asdict() if self.measured else {}

    def restore(self, state: Mapping[str, Any]) -> None:
        if not state:
            return
        width, batches = int(state["exact_width"]), state["exact_batches"] is True
        if width not in (1, *WIDTHS):
            raise ValueError(f"exact_width {width} is not a width that is checked")
        self.measured = Rounding(width, batches)


class KnownPair(PairRecord):
    """The results of the draft model with this target, by which later pairings are chosen."""

    def __init__(self, costs: CostCurve, draft_costs: CostCurve, survival: Survival) -> None:
        super().__init__()
        self._costs, self._draft_costs, self._survival = costs, draft_costs, survival

    def count(self, drafted: int, accepted: int) -> None:
        before = self.tried
        self.tried = PairResults(before.drafted + drafted, before.accepted + accepted, before.gain)

    def state(self) -> dict[str, Any]:
        """The results, with the speed that the controller expects of drafts of the best length, relative to
        plain decoding; 1 if the best is no draft."""
        if self._costs.knows(2, SPEED_CONTEXT) and self._draft_costs.knows(1, SPEED_CONTEXT):
            step_s, line = self._draft_costs.seconds(1, SPEED_CONTEXT), self._costs.line(SPEED_CONTEXT)
            seconds = [line[k + 1] + k * step_s for k in range(BUCKETS + 1)]
            k, rate = best_length(self._survival.curve(NO_REQUEST, range(BUCKETS)), seconds)
            self.tried = self.tried._replace(gain=rate * seconds[0] if k else 1.0)
        return super().state()


@dataclass(slots=True)
class KnownDraft:
    """All that was learnt of a draft model: the costs of its steps, and how it did with this target."""

    costs: CostCurve
    pair: KnownPair | None = None
    records: list[Record] = field(default_factory=list)


class Learning:
    """All that was learnt of a target and of its draft models.

    ``directory`` keeps costs and calibration between runs; None: they end with the engine. Costs hold for one
    backend version, one placement of the layers, and the ``nodes`` that share them; the accuracy of drafts
    for the ``model``, which is the target, wherever its layers are. If a file cannot be read or written, its
    results are lost, and nothing else."""

    def __init__(
        self,
        target: Backend,
        *,
        directory: Path | None = None,
        model: Model | None = None,
        nodes: Sequence[str] = (),
        memory: Memory | None = None,
        chats: Saved | None = None,
    ) -> None:
        self.memory, self.chats = memory, chats
        marks = (target.vocabulary.encode(mark, special=True) for mark in ("<think>", "</think>"))
        self._thought = [tokens[0] if len(tokens) == 1 else -1 for tokens in marks]
        """the tokens that begin and end a thought; -1: the model has none"""
        self.costs = CostCurve(target.description, settling=target.capabilities.settling)
        self.calibration = Calibration()
        self.rounding = KnownRounding()
        self._drafts: dict[Backend, KnownDraft] = {}
        self._directory, self._model, self.nodes = directory, model, nodes
        limits, kind = target.capabilities, target.description if model is None else name_of_model(model)
        probed = f"{limits.n_ctx} cells, at most {limits.max_batch} tokens at once"
        self._records = [
            *self._open_record(f"cost of {target.description}{over(nodes)}", self.costs),
            *self._open_record(f"exact widths of {target.description}{over(nodes)}, {probed}", self.rounding),
            *self._open_record(f"calibration of {kind}", self.calibration),
        ]

    def _open_record(self, what: str, learnt: LearntState) -> list[Record]:
        """The record of what is learnt, which is read; none without a directory."""
        records = [] if self._directory is None else [Record(self._directory, what, learnt)]
        for record in records:
            record.read()
        return records

    def know_draft(self, draft: Backend, model: Model | None = None) -> KnownDraft:
        """Return all that was learnt of a draft model; its ``model`` is for the choice of later pairs."""
        known = self._drafts.get(draft)
        if known is None:
            known = self._drafts[draft] = KnownDraft(CostCurve(draft.description, unknown_s=DRAFT_S))
            known.records = self._open_record(f"cost of {draft.description}", known.costs)
            if model is not None and self._model is not None:
                survival = self.calibration.by_position(name_accuracy(draft))
                known.pair = KnownPair(self.costs, known.costs, survival)
                known.records += self._open_record(name_of_pair(self._model, model, self.nodes), known.pair)
        return known

    def drop_draft(self, draft: Backend) -> None:
        """Write what was learnt of a draft model that is to be freed."""
        for record in self._drafts.pop(draft).records:
            record.write()

    def count(self, stats: Stats, draft: Backend | None) -> None:
        """Add the drafts of a request that has ended to the results of its pair."""
        share, known = stats.proposers.get(DraftModel.name), draft and self._drafts.get(draft)
        if share is not None and known and known.pair is not None:
            known.pair.count(share.drafted, share.accepted)

    def remember(self, tokens: Sequence[int], earlier: int, workspace: str | None, source: str) -> None:
        """Have the n-gram memory learn a request's text after the ``earlier`` turns, but not the thoughts."""
        for start, end in outside(tokens, *self._thought):
            if self.memory is not None and end > earlier:
                self.memory.learn(MemoryText(tokens[start:end], workspace, source, max(0, earlier - start)))

    def work(self) -> bool:
        """Learn a queued text for about a millisecond; return False if there is none."""
        return self.memory is not None and self.memory.work()

    def know_rounding(self, target: Backend) -> None:
        """Set the target's rounding: as measured earlier, or by a short probe now, or as presumed."""
        if not target.capabilities.obstacle:
            if self.rounding.measured is None:
                self.rounding.measured = measure_rounding(target)
            set_rounding(target, self.rounding.measured or PRESUMED)

    def save(self) -> None:
        for record in (*self._records, *(each for known in self._drafts.values() for each in known.records)):
            record.write()

    def close(self) -> None:
        """Write everything to disk, the texts queued for the n-gram memory included."""
        self.save()
        if self.memory is not None:
            self.memory.close()


def outside(tokens: Sequence[int], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """The (start, end) of all text outside its thoughts; one that does not end reaches to the text's end."""
    at = 0
    with suppress(ValueError):  # there is no further mark
        while True:
            mark = tokens.index(begin, at)
            yield at, mark
            at = len(tokens)
            at = tokens.index(end, mark)
    yield at, len(tokens)
