"""The benchmark from beginning to end: models, curves, ceilings, runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from localspec.bench.cheap import cheap_makers
from localspec.bench.contestant import chosen, own_contestants, sentence_of
from localspec.bench.curve import CONTEXT, CostLine, measure_curve
from localspec.bench.figures import figures_of
from localspec.bench.inflate import DRAFT_RATIOS, TARGET_SHAPE, draft_shape, inflated_model
from localspec.bench.log import Log
from localspec.bench.machine import machine_facts, peak_memory
from localspec.bench.measure import Clock, Plan, Script, in_time, measure, record, turn_teller
from localspec.bench.oracle import (
    least_seconds,
    model_offers,
    offers_along,
    plain_seconds,
    true_offers,
)
from localspec.bench.results import (
    CONTROL,
    Ceiling,
    Contestant,
    Curve,
    Overhead,
    Results,
    Run,
    Setting,
)
from localspec.bench.rivals import Rival, opened, rivals_of, worth_repeating
from localspec.bench.simulate import propose_costs
from localspec.bench.stand import TARGET, Stand, Tell, load_stand, model_facts
from localspec.bench.workload import WORKLOADS, Case, load_workload, quick
from localspec.errors import InvalidOptions
from localspec.models.bundled import BUNDLED_DRAFT, BUNDLED_TARGET, bundled_model
from localspec.models.model import own_name
from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.options import unknown_key

QUICK_WORKLOADS = ("edit-short", "chat")
QUICK_BUDGET_S = 50.0
RUNS = 5
PARALLEL = 2


class Order(NamedTuple):
    """The choice of measurements. ``target`` None: the bundled pair, inflated; no ``contestants``: all.

    ``workloads`` None: all, or those of a quick run.
    ``cases``: the number of cases of each workload; None: all.
    """

    target: Path | None = None
    draft: Path | None = None
    config: EngineConfig = EngineConfig()
    workloads: tuple[str, ...] | None = None
    contestants: tuple[str, ...] = ()
    runs: int = RUNS
    cases: int | None = None
    quick: bool = False
    llama_server: Path | None = None


class Bench:
    """One run of the benchmark; ``results`` grows meanwhile and is a valid document at any time.

    A class that measures more extends :meth:`measure` and :meth:`conclude`, with a document of its ``kind``.
    """

    kind: type[Results] = Results

    def __init__(self, order: Order, tell: Tell) -> None:
        """Raises :class:`InvalidOptions` for unknown workloads and contestants."""
        self.order, self.tell = order, tell
        self._workloads = _known_workloads(order)
        self.models = model_paths(order, tell)
        own = own_contestants(self.labels)
        rivals = self._all_rivals()
        taking_part = chosen([*own, *(rival.contestant for rival in rivals)], order.contestants)
        self.own = [contestant for contestant in taking_part if contestant in own]
        self._rivals = [rival for rival in rivals if rival.contestant in taking_part]
        self._scripts: list[Script] = []
        self._began = time.monotonic()
        self.results = self.kind(
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            machine=machine_facts(order.config.threads),
            models=[model_facts(role, path) for role, path in self.models.items()],
            setting=Setting(
                order.runs, order.quick, self._workloads, order.config.n_ctx, self.budget_s, order.cases
            ),
            contestants=taking_part,
        )

    @property
    def budget_s(self) -> float | None:
        return QUICK_BUDGET_S if self.order.quick else None

    @property
    def labels(self) -> list[str]:
        return [role for role in self.models if role != TARGET]

    def _all_rivals(self) -> list[Rival]:
        """The references; none in a quick run, which has no time for them."""
        if self.order.quick:
            return []
        draft = self.models[self.labels[0]] if self.labels else None
        return rivals_of(self.models[TARGET], draft, self.order.config, self.order.llama_server)

    @property
    def logs(self) -> list[Log]:
        """The token logs of all plain answers so far."""
        return [step.log for script in self._scripts for step in script.steps]

    def run(self) -> Results:
        """Measure everything; after an interrupt or error :attr:`results` has what was measured before."""
        try:
            with self._stand() as stand:
                self.measure(stand)
        except KeyboardInterrupt:
            self.results.stopped = "interrupted"
            raise
        except Exception as error:  # a full disk, a lost device: the document has the error
            self.results.stopped = f"ended by an error ({sentence_of(error)})"
            raise
        finally:
            self.conclude()
        return self.results

    def record(self) -> list[Log]:
        """Record plain answers only, without measuring."""
        with self._stand() as stand:
            self._record(stand, Clock(None))
        return self.logs

    @contextmanager
    def _stand(self) -> Iterator[Stand]:
        drafts = {role: path for role, path in self.models.items() if role != TARGET}
        config = msgspec.structs.replace(self.order.config, parallel=PARALLEL)
        stand = load_stand(self.models[TARGET], drafts, config, self.tell)
        try:
            yield stand
        finally:
            stand.close()

    def measure(self, stand: Stand) -> None:
        """Measure on loaded models."""
        results = self.results
        clock = Clock(self.budget_s)
        self._record(stand, clock)
        self._curves(stand)
        self._ceilings(stand)
        for run in self._runs(stand, clock):
            results.runs.append(run)
        results.left_out = self._left_out()
        self.tell("propose and observe", 0.0)
        with cheap_makers() as makers:
            results.propose_costs = propose_costs(makers.items())
        ours = {contestant.name for contestant in self.own} - {CONTROL}
        runs = [run for run in results.runs if run.contestant in ours]
        results.overheads = overheads_of(runs, own_name(self.models[TARGET]), stand)

    def _record(self, stand: Stand, clock: Clock) -> None:
        """Play every case once."""
        cases = self._recorded
        on_turn = turn_teller(cases, self.tell)
        for case in in_time(cases, clock):
            self._scripts += record(stand, [case], on_turn)
        # A log has a workload's cases one after the other: the simulator's memory learns from them.
        self._scripts.sort(key=lambda script: self._workloads.index(script.workload))

    @property
    def _recorded(self) -> list[Case]:
        return [case for workload in self._workloads for case in self.some(load_workload(workload))]

    def _left_out(self) -> list[str]:
        """The cases that were not recorded or not measured for lack of time."""
        measured = {(run.workload, run.case) for run in self.results.runs}
        wanted = [(case.workload, case.name) for case in self._recorded]
        return [f"{workload} / {name}" for workload, name in wanted if (workload, name) not in measured]

    def some(self, cases: Sequence[Case], sources: int = 1) -> Sequence[Case]:
        """The cases of a workload that are ordered: so many of each of its ``sources``."""
        if self.order.quick:
            return quick(cases)
        most = self.order.cases
        return cases if most is None else cases[: most * sources]

    def _curves(self, stand: Stand) -> None:
        """Measure the cost curves twice: as the engines do, and more thoroughly for the oracles."""
        stand.measure_costs(self.tell)
        text = [token for log in self.logs for token in (*log.prompt, *log.output)]
        for role, backend in {TARGET: stand.target, **stand.drafts}.items():
            self.tell(f"cost of a forward: {role}", 0.5)
            self.results.curves.append(measure_curve(backend, role, text))
        known = stand.costs[TARGET].measured(CONTEXT)
        self.results.curves.append(Curve(f"{TARGET}, as auto knows it", CONTEXT, known))

    def _ceilings(self, stand: Stand) -> None:
        lines = {curve.role: CostLine(curve.seconds) for curve in self.results.curves}
        for number, script in enumerate(self._scripts):
            self.tell("oracles", number / len(self._scripts))
            self.results.ceilings += ceilings_of(script, stand, lines)

    def _runs(self, stand: Stand, clock: Clock) -> Iterator[Run]:
        failures = self.results.failures
        plan = Plan(self._scripts, self._taking_part, self.order.runs, clock, failures)
        n_ctx = stand.target.capabilities.n_ctx
        self.tell("starting the references", 0.0)
        with opened(self._rivals, stand.target.vocabulary, n_ctx, failures) as guests:
            yield from measure(stand, plan, guests, self.tell)

    def _taking_part(self, workload: str, repeat: int) -> list[Contestant]:
        """Localspec's contestants, and the references: after the first repeat only their best settings."""
        mine = [run for run in self.results.runs if run.workload == workload]
        # A setting that failed is not the best one, however fast it was until then.
        rivals = [r for r in self._rivals if r.contestant.name not in self.results.failures]
        rivals = worth_repeating(rivals, mine) if repeat else rivals
        return [*self.own, *(rival.contestant for rival in rivals)]

    def conclude(self) -> None:
        """Compute what follows from the measurements."""
        results = self.results
        results.figures = figures_of(results)
        results.peak_memory = peak_memory()
        results.duration_s = time.monotonic() - self._began


def ceilings_of(script: Script, stand: Stand, lines: Mapping[str, CostLine]) -> list[Ceiling]:
    """Both oracles for every turn of a case, the router's once per draft model."""
    cost = lines[TARGET]
    found = []
    with cheap_makers() as makers:
        cheap = [make() for make in makers.values()]
        for request, step in enumerate(script.steps):
            log, tokens = step.log, len(step.log.output)
            offers = [offers_along(proposer, log, request) for proposer in cheap]
            plain, truth = plain_seconds(tokens, cost), least_seconds(tokens, [true_offers(tokens)], cost)
            for label in stand.drafts or (None,):
                drafted = [] if label is None else [model_offers(stand.drafts[label], log, lines[label](1))]
                router = least_seconds(tokens, [*offers, *drafted], cost)
                ceiling = Ceiling(log.workload, log.case, log.turn, label, tokens, plain, router, truth)
                found.append(ceiling)
    return found


def overheads_of(runs: Sequence[Run], model: str, stand: Stand) -> list[Overhead]:
    """The overhead of localspec in rounds without a draft model, by contestant."""
    found = []
    for name in dict.fromkeys(run.contestant for run in runs):
        mine = [run for run in runs if run.contestant == name and run.forward_s > 0]
        forward = sum(run.forward_s for run in mine)
        if forward:
            share = sum(run.round_s for run in mine) / forward - 1
            rounds = sum(run.rounds or 0 for run in mine)
            found.append(Overhead(model, stand.target.vocabulary.size, name, rounds, share))
    return found


def _known_workloads(order: Order) -> tuple[str, ...]:
    names = order.workloads
    if names is None:
        names = QUICK_WORKLOADS if order.quick else tuple(WORKLOADS)
    for name in names:
        if name not in WORKLOADS:
            raise InvalidOptions(
                unknown_key("workload", name, list(WORKLOADS)), f"Choose among: {', '.join(WORKLOADS)}."
            )
    return tuple(dict.fromkeys(names))


def model_paths(order: Order, tell: Tell) -> dict[str, Path]:
    """The models' paths by role; the bundled pair is inflated, the draft once per cost ratio."""

    def part(role: str) -> Callable[[float], None]:
        # Reading the source comes before the first part of the file, writing it after the last.
        tell(f"inflating the {role}", 0.0)
        return lambda fraction: tell(f"inflating the {role}", fraction)

    if order.target is not None:
        given = {} if order.draft is None else {"draft": order.draft}
        return {TARGET: order.target, **given}
    target, draft = bundled_model(BUNDLED_TARGET), bundled_model(BUNDLED_DRAFT)
    ratios = DRAFT_RATIOS[:1] if order.quick else DRAFT_RATIOS
    shapes = {f"draft {ratio:g}": draft_shape(ratio) for ratio in ratios}
    inflated = {role: inflated_model(draft, shape, progress=part(role)) for role, shape in shapes.items()}
    return {TARGET: inflated_model(target, TARGET_SHAPE, progress=part(TARGET)), **inflated}
