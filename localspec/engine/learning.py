"""The results that an engine learns and keeps: n-gram memory, costs of forwards, accuracy of drafts.

An engine without requests does chores: it measures, learns files that users write, each line once, wherever
it moves, and writes the results to disk.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from localspec.backends.base import (
    PRESUMED,
    WIDTHS,
    Backend,
    Probe,
    Rounding,
    Vocabulary,
    measure_rounding,
    set_rounding,
)
from localspec.engine.prefixes import Prefixes, Saved
from localspec.errors import EngineBusy, LocalspecError
from localspec.memory.memory import Memory, Moment
from localspec.memory.sources import apart
from localspec.memory.texts import MAX_BYTES, Lesson, may_learn
from localspec.models.library import Learnt, Record, Tried, TriedRecord, name_of_model, name_of_pair, over
from localspec.models.model import Model
from localspec.protocol.requests import FimPrompt, Stats
from localspec.speculation.controller import BUCKETS, Calibration, Survival, best_length
from localspec.speculation.costs import CostCurve
from localspec.speculation.draft_model import DraftModel, learnt_as

CONTEXT = 2
"""lines before a new one that are learnt with it, even if known"""
PIECE = 64
"""lines that are examined, or tokenized, in one step"""
SEEN = 200_000
"""number of learnt lines that are kept to recognise them"""
WAITING = 256
"""the most files in the queue; if there are more, the oldest are dropped"""


class Primer:
    """Adds the lines of files to ``memory``, if there is one, in small steps. Only the newest text of a file
    is learnt; files that git ignores, or whose names suggest secrets, never are."""

    def __init__(self, memory: Memory | None, vocabulary: Vocabulary) -> None:
        self._memory, self._vocabulary = memory, vocabulary
        self._waiting: dict[tuple[str, str | None, int], tuple[tuple[str, ...], Moment]] = {}
        """files' parts, and the moments at which they were queued, by path, workspace and number of parts: a
        piece does not replace its whole file"""
        self._steps: Iterator[None] = iter(())
        self._seen: dict[bytes, None] = {}

    def read(self, prompt: FimPrompt, workspace: str | None) -> None:
        """Queue a gap's own file, except the line that is being written, and its pieces of other files."""
        if prompt.path is not None:
            above = prompt.prefix[: prompt.prefix.rfind("\n") + 1]
            self.teach(prompt.path, workspace, above, prompt.suffix.partition("\n")[2])
        for file in prompt.extra:
            self.teach(file.path, workspace, file.text)

    def forget(self, source: str) -> None:
        """Drop the queued texts of ``source``, and count all later lines as new."""
        self._waiting = {key: pending for key, pending in self._waiting.items() if f"file:{key[0]}" != source}
        self._seen.clear()

    def teach(self, path: str, workspace: str | None, *parts: str) -> None:
        """Queue a file's parts, which are not adjacent, to be learnt into the table of ``workspace``."""
        moment = None if self._memory is None else self._memory.moment(workspace)
        if moment is None or sum(map(len, parts)) > MAX_BYTES:
            return
        self._waiting[path, workspace, len(parts)] = parts, moment
        if len(self._waiting) > WAITING:
            del self._waiting[next(iter(self._waiting))]

    def work(self) -> bool:
        """Do a small step; return False if there was nothing to do."""
        try:
            next(self._steps)
        except StopIteration:
            if not self._waiting:
                return False
            path, workspace, count = next(iter(self._waiting))
            parts, moment = self._waiting.pop((path, workspace, count))
            self._steps = self._read_parts(path, workspace, parts, moment)
        return True

    def _read_parts(
        self, path: str, workspace: str | None, parts: tuple[str, ...], moment: Moment
    ) -> Iterator[None]:
        # In a thread, because git answers from untrusted files, and may wait for a disk.
        if not (yield from apart(lambda: _allowed(path, workspace))):
            return
        lesson = partial(Lesson, workspace=workspace, source=f"file:{path}")
        for part in parts:
            yield from self._learn(part, moment, lesson)

    def _learn(self, text: str, moment: Moment, lesson: Callable[[list[int]], Lesson]) -> Iterator[None]:
        lines, fresh = text.splitlines(keepends=True), list[int]()
        for i, line in enumerate(lines):
            if line.strip() and self._is_new(lines, i, moment):
                fresh.append(i)
            if i % PIECE == PIECE - 1:
                yield
        for start, end in _runs(fresh):
            piece = "".join(lines[max(0, start - CONTEXT) : end])
            tokens = self._vocabulary.encode(piece, special=False)
            if self._memory is not None:
                self._memory.learn(lesson(tokens), moment)
            yield

    def _is_new(self, lines: Sequence[str], i: int, moment: Moment) -> bool:
        """Return True if this table has not yet learnt line ``i`` after the one before it; count it as learnt
        from now on."""
        line = f"{moment.table}\0{moment.epoch}\0{lines[i - 1] if i else ''}\0{lines[i]}"
        key = hashlib.blake2b(line.encode("utf-8", "replace"), digest_size=8).digest()
        if key in self._seen:
            return False
        self._seen[key] = None
        if len(self._seen) > SEEN:
            del self._seen[next(iter(self._seen))]
        return True


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of runs of line ``numbers``, with at most one other line between two, and at most
    PIECE lines each."""
    start = last = -1
    for number in numbers:
        if start >= 0 and (number - last > CONTEXT or number - start >= PIECE):
            yield start, last + 1
            start = -1
        if start < 0:
            start = number
        last = number
    if start >= 0:
        yield start, last + 1


def _allowed(path: str, workspace: str | None) -> bool:
    """Return True if a file may be learnt; False also if its absolute path is not known."""
    where = os.path.join(workspace or "", path)
    try:
        return os.path.isabs(where) and may_learn(Path(where))
    except (OSError, ValueError, RuntimeError):
        return False  # no path of a file


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


class KnownPair(TriedRecord):
    """The results of the draft model with this target, by which later pairings are chosen."""

    def __init__(self, costs: CostCurve, draft_costs: CostCurve, survival: Survival) -> None:
        super().__init__()
        self._costs, self._draft_costs, self._survival = costs, draft_costs, survival

    def count(self, drafted: int, accepted: int) -> None:
        """Add the drafted and accepted tokens of a request that has ended."""
        before = self.tried
        self.tried = Tried(before.drafted + drafted, before.accepted + accepted, before.gain)

    def state(self) -> dict[str, Any]:
        if self._costs.knows(2, SPEED_CONTEXT) and self._draft_costs.knows(1, SPEED_CONTEXT):
            self.tried = self.tried._replace(gain=self._gain())
        return super().state()

    def _gain(self) -> float:
        """The speed with drafts of the best length, relative to plain decoding, as the controller estimates
        it; 1 if the best is no draft."""
        step_s = self._draft_costs.seconds(1, SPEED_CONTEXT)
        line = self._costs.line(SPEED_CONTEXT)
        seconds = [line[k + 1] + k * step_s for k in range(BUCKETS + 1)]
        survival = self._survival.curve(NO_REQUEST, range(BUCKETS))
        k, rate = best_length(survival, seconds)
        return rate * seconds[0] if k else 1.0


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
    results are lost, and nothing else.
    """

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
        self.costs = CostCurve(target.description)
        self.calibration = Calibration()
        self.rounding = KnownRounding()
        self._drafts: dict[Backend, KnownDraft] = {}
        self._directory, self._model, self.nodes = directory, model, nodes
        limits, kind = target.capabilities, target.description if model is None else name_of_model(model)
        probed = f"{limits.n_ctx} cells, at most {limits.max_batch} tokens at once"
        self._records = [
            *self._kept(f"cost of {target.description}{over(nodes)}", self.costs),
            *self._kept(f"exact widths of {target.description}{over(nodes)}, {probed}", self.rounding),
            *self._kept(f"calibration of {kind}", self.calibration),
        ]

    def _kept(self, what: str, learnt: Learnt) -> list[Record]:
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
            known.records = self._kept(f"cost of {draft.description}", known.costs)
            if model is not None and self._model is not None:
                survival = self.calibration.by_position(learnt_as(draft))
                known.pair = KnownPair(self.costs, known.costs, survival)
                known.records += self._kept(name_of_pair(self._model, model, self.nodes), known.pair)
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
                self.memory.learn(Lesson(tokens[start:end], workspace, source, max(0, earlier - start)))

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
        """Write what has changed."""
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


FINISH_S = 2.0
"""the most seconds that an engine spends at its end on files that are still to be learnt"""
REMEMBER_S = 0.02
"""the most seconds that a request waits while the texts of earlier ones are learnt"""

log = logging.getLogger(__name__)

STOPPED = object()


def on_battery() -> bool:
    battery = getattr(psutil, "sensors_battery", lambda: None)()
    return battery is not None and battery.power_plugged is False


class Idle:
    """The chores of an engine, in small steps; ``measures``: the target, if it is not known, among them. Over
    nodes it is measured after each load, as the network may be another one."""

    def __init__(self, target: Backend, learning: Learning, prefixes: Prefixes, *, measures: bool) -> None:
        self._target, self._learning, self._prefixes = target, learning, prefixes
        self.primer = Primer(learning.memory, target.vocabulary)
        known = learning.rounding.measured is not None and learning.costs.knows(max(WIDTHS), 0)
        unknown = measures and not (known and not learning.nodes) and not target.capabilities.obstacle
        self._costs = CostCurve(target.description) if learning.nodes else learning.costs
        self._probe = Probe(target, self._costs.observe) if unknown else None
        self._measuring: Generator[None, None, Rounding] | None = None
        self._writing: Generator[None, None, None] | None = None
        self._saved = True

    def step(self) -> bool:
        """Do one small step; return True if there is more to do."""
        if self._learning.work() or self.primer.work() or self._write_chat() or self._measure():
            return True
        if not self._saved:
            self._saved = True
            self._learning.save()
        return False

    def _write_chat(self) -> bool:
        """Write some of a chat's cache to disk; return False if all are written."""
        if self._writing is None:
            self._writing = self._prefixes.write_chat()
        if self._writing is None:
            return False
        if next(self._writing, STOPPED) is STOPPED:
            self._writing = None
        return True

    def forget(self, source: str) -> None:
        """Drop the texts of ``source`` that are to be learnt. A cache that is being written may belong to it:
        stop that; if it does not, it is written again later."""
        self.primer.forget(source)
        if self._learning.memory is not None:
            self._learning.memory.forget(source)
        if self._writing is not None:
            self._writing.close()
            self._writing = None

    def finish(self) -> None:
        """At the end of the engine, learn queued files for up to :data:`FINISH_S`, and write all chats."""
        until = time.perf_counter() + FINISH_S
        while self.primer.work():
            if time.perf_counter() >= until:
                log.warning("some opened files were not learnt: the engine's end left no time for them")
                break
        while self._write_chat():
            pass

    def interrupt(self, *, remember: bool = False) -> None:
        """Stop a measurement and free its sequence, for a request; it continues later where it was. With
        ``remember``, learn queued texts for up to :data:`REMEMBER_S`: the request may be about them."""
        self._saved = False
        if self._measuring is not None:
            self._measuring.close()
            self._measuring = None
        until = time.perf_counter() + REMEMBER_S
        while remember and self._learning.work() and time.perf_counter() < until:
            pass

    def _measure(self) -> bool:
        """Do one step of the target's measurement; return False if there is none, no sequence for it, or no
        mains: it begins again after the next request."""
        if self._probe is None or (self._measuring is None and on_battery()):
            return False
        if self._measuring is None:
            self._measuring = self._probe.steps()
        try:
            next(self._measuring)
        except StopIteration as end:
            self._learning.rounding.measured = end.value
            if self._costs is not self._learning.costs:
                self._learning.costs.restore(self._costs.state())
            set_rounding(self._target, end.value)
            self._probe, self._saved = None, False
        except EngineBusy:
            self._measuring = None
            return self._prefixes.lay_aside()
        except LocalspecError as error:
            log.warning("a measurement of the model failed: %s", error.message)
            self._probe = None
        return True
