"""The benchmark from beginning to end: models, curves, ceilings, runs, special workloads, goals."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from localspec import home
from localspec.bench.cheap import cheap_makers
from localspec.bench.contestant import attempt, chosen, own_contestants, sentence_of, sweep_contestants
from localspec.bench.curve import CONTEXT, CostLine, measure_curve
from localspec.bench.figures import figures_of
from localspec.bench.goals import goals_of
from localspec.bench.inflate import (
    DRAFT_RATIOS,
    LARGE_VOCABULARY,
    TARGET_SHAPE,
    draft_shape,
    inflated_model,
    random_model,
)
from localspec.bench.log import Log
from localspec.bench.machine import machine_facts, peak_memory
from localspec.bench.measure import Clock, Plan, Script, in_time, measure, play_script, record, turn_teller
from localspec.bench.oracle import (
    least_seconds,
    model_offers,
    offers_along,
    plain_seconds,
    true_offers,
)
from localspec.bench.restart import MEMORY, measure_restart
from localspec.bench.results import (
    CONTROL,
    PLAIN,
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
from localspec.bench.two_up import measure_two_up
from localspec.bench.workload import WORKLOADS, Case, load_workload, quick
from localspec.config import EngineConfig
from localspec.errors import InvalidOptions
from localspec.models.bundled import BUNDLED_DRAFT, BUNDLED_TARGET, bundled_model
from localspec.models.description import format_of
from localspec.models.model import own_name
from localspec.protocol.options import unknown_key

RESTART, TWO_UP, SWEEP = "warm-restart", "two-up", "sweep"
QUICK_WORKLOADS = ("edit-short", "chat")
QUICK_BUDGET_S = 50.0
RUNS = 5
PARALLEL = 2
OVERHEAD_CASES = 2


class Order(NamedTuple):
    """What to measure. ``target`` None: the bundled pair, inflated; empty names: all there are.

    ``cases``: only so many of each workload; None: all.
    """

    target: Path | None = None
    draft: Path | None = None
    config: EngineConfig = EngineConfig()
    workloads: tuple[str, ...] = ()
    contestants: tuple[str, ...] = ()
    runs: int = RUNS
    cases: int | None = None
    quick: bool = False
    llama_server: Path | None = None


class Bench:
    """One run of the benchmark; ``results`` grows while it works and is complete at any time."""

    def __init__(self, order: Order, tell: Tell) -> None:
        """Raises :class:`InvalidOptions` for unknown workloads and contestants."""
        self._order, self._tell = order, tell
        self._workloads = _known_workloads(order)
        self._models = model_paths(order, tell)
        own = own_contestants(self._labels)
        rivals = self._all_rivals()
        taking_part = chosen([*own, *(rival.contestant for rival in rivals)], order.contestants)
        self._contestants = [contestant for contestant in taking_part if contestant in own]
        self._rivals = [rival for rival in rivals if rival.contestant in taking_part]
        self._sweep = chosen_for_sweep(self._labels, self._contestants) if SWEEP in self._workloads else []
        self._scripts: list[Script] = []
        self._began = time.monotonic()
        self.results = Results(
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            machine=machine_facts(order.config.threads),
            models=[model_facts(role, path) for role, path in self._models.items()],
            setting=Setting(
                order.runs, order.quick, self._workloads, order.config.n_ctx, self._budget_s, order.cases
            ),
            contestants=list(dict.fromkeys((*taking_part, *self._sweep))),
        )

    @property
    def _budget_s(self) -> float | None:
        return QUICK_BUDGET_S if self._order.quick else None

    @property
    def _labels(self) -> list[str]:
        return [role for role in self._models if role != TARGET]

    def _all_rivals(self) -> list[Rival]:
        """None in a quick run: there is no time for them."""
        if self._order.quick:
            return []
        draft = self._models[self._labels[0]] if self._labels else None
        return rivals_of(self._models[TARGET], draft, self._order.config, self._order.llama_server)

    @property
    def logs(self) -> list[Log]:
        """Every plain answer so far."""
        return [step.log for script in self._scripts for step in script.steps]

    def run(self) -> Results:
        """Measure everything; whatever ends it leaves :attr:`results` with what was measured until then."""
        try:
            with self._stand() as stand:
                self._measure(stand)
        except KeyboardInterrupt:
            self.results.stopped = "interrupted"
            raise
        except Exception as error:  # a full disk, a lost device: the document says what ended it
            self.results.stopped = f"ended by an error ({sentence_of(error)})"
            raise
        finally:
            self._conclude()
        return self.results

    def record(self) -> list[Log]:
        """Plain answers only; nothing is measured."""
        with self._stand() as stand:
            self._record(stand, Clock(None))
        return self.logs

    @contextmanager
    def _stand(self) -> Iterator[Stand]:
        drafts = {role: path for role, path in self._models.items() if role != TARGET}
        config = msgspec.structs.replace(self._order.config, parallel=PARALLEL)
        stand = load_stand(self._models[TARGET], drafts, config, self._tell)
        try:
            yield stand
        finally:
            stand.close()

    def _measure(self, stand: Stand) -> None:
        results = self.results
        clock = Clock(self._budget_s)
        self._record(stand, clock)
        self._curves(stand)
        self._ceilings(stand)
        for run in self._runs(stand, clock):
            results.runs.append(run)
        results.left_out = self._left_out()
        self._tell("propose and observe", 0.0)
        with cheap_makers() as makers:
            results.propose_costs = propose_costs(makers.items())
        ours = {contestant.name for contestant in self._contestants} - {CONTROL}
        runs = [run for run in results.runs if run.contestant in ours and run.workload != SWEEP]
        results.overheads = overheads_of(runs, own_name(self._models[TARGET]), stand)
        self._special(stand)
        if not self._order.quick and format_of(self._models[TARGET]) == "gguf":
            self._large_vocabulary()

    def _record(self, stand: Stand, clock: Clock) -> None:
        """Play the cases of the ordinary workloads, and those that special ones need, once."""
        cases = self._recorded
        on_turn = turn_teller(cases, self._tell)
        for case in in_time(cases, clock):
            self._scripts += record(stand, [case], on_turn)
        # A log tells a workload's cases one after the other: the simulator's memory is taught by them.
        self._scripts.sort(key=lambda script: self._workloads.index(script.workload))

    @property
    def _recorded(self) -> list[Case]:
        return [case for workload in self._workloads if workload != TWO_UP for case in self._cases(workload)]

    def _left_out(self) -> list[str]:
        """The cases that there was no time to record, or to measure then."""
        measured = {(run.workload, run.case) for run in self.results.runs}
        measured |= {(s.workload, s.case) for s in self._scripts if s.workload == RESTART}
        asked = [(case.workload, case.name) for case in self._recorded]
        return [f"{workload} / {name}" for workload, name in asked if (workload, name) not in measured]

    def _cases(self, workload: str) -> Sequence[Case]:
        cases = load_workload(workload)
        if self._order.quick:
            return quick(cases)
        # Of each kind, where a workload is made of several.
        most = self._order.cases
        return cases if most is None else cases[: most * len(WORKLOADS[workload].sources)]

    def _curves(self, stand: Stand) -> None:
        """Twice: as the engines do it for themselves, and more thoroughly for the oracles."""
        stand.measure_costs(self._tell)
        text = [token for log in self.logs for token in (*log.prompt, *log.output)]
        for role, backend in {TARGET: stand.target, **stand.drafts}.items():
            self._tell(f"cost of a forward: {role}", 0.5)
            self.results.curves.append(measure_curve(backend, role, text))
        known = stand.costs[TARGET].measured(CONTEXT)
        self.results.curves.append(Curve(f"{TARGET}, as auto knows it", CONTEXT, known))

    def _ceilings(self, stand: Stand) -> None:
        lines = {curve.role: CostLine(curve.seconds) for curve in self.results.curves}
        scripts = [s for s in self._scripts if s.workload not in (RESTART, SWEEP)]
        for number, script in enumerate(scripts):
            self._tell("oracles", number / len(scripts))
            self.results.ceilings += ceilings_of(script, stand, lines)

    def _runs(self, stand: Stand, clock: Clock) -> Iterator[Run]:
        scripts = [s for s in self._scripts if s.workload != RESTART]
        failures = self.results.failures
        plan = Plan(scripts, self._taking_part, self._order.runs, clock, failures)
        n_ctx = stand.target.capabilities.n_ctx
        self._tell("starting the references", 0.0)
        with opened(self._rivals, stand.target.vocabulary, n_ctx, failures) as guests:
            yield from measure(stand, plan, guests, self._tell)

    def _taking_part(self, workload: str, repeat: int) -> list[Contestant]:
        """Ours; the references, of whose settings only the best go on after the first repeat."""
        if workload == SWEEP:
            return self._sweep
        mine = [run for run in self.results.runs if run.workload == workload]
        # A setting that failed is not the best one, however fast it was until then.
        rivals = [r for r in self._rivals if r.contestant.name not in self.results.failures]
        rivals = worth_repeating(rivals, mine) if repeat else rivals
        return [*self._contestants, *(rival.contestant for rival in rivals)]

    def _special(self, stand: Stand) -> None:
        results = self.results
        two = [c for c in self._contestants if c.name in (PLAIN, "auto") and c.name not in results.failures]
        for contestant in two if TWO_UP in self._workloads else ():
            with attempt(contestant, results.failures):
                results.two_up.append(measure_two_up(stand, self._cases(TWO_UP), contestant, self._tell))
        if RESTART in self._workloads and MEMORY.name not in results.failures:
            scripts = [s for s in self._scripts if s.workload == RESTART]
            runs = 1 if self._order.quick else self._order.runs
            with attempt(MEMORY, results.failures):
                for restart in measure_restart(stand, scripts, runs, self._tell):
                    results.restarts.append(restart)

    def _large_vocabulary(self) -> None:
        """Our overhead where a row of logits is long: a few requests on a model of random weights."""
        self._tell("a large vocabulary", 0.0)
        path = home.cache_dir() / "bench" / f"random-{LARGE_VOCABULARY}-{TARGET_SHAPE.label}.gguf"
        if not path.exists():
            random_model(path, bundled_model(BUNDLED_TARGET))
        config = msgspec.structs.replace(self._order.config, parallel=1)
        stand = load_stand(path, {}, config, self._tell)
        try:
            scripts = record(stand, load_workload("chat")[:OVERHEAD_CASES])
            runs = []
            for script in scripts:
                for contestant in (Contestant(PLAIN), Contestant("prompt-lookup", "prompt-lookup")):
                    for run in play_script(stand, script, contestant):
                        run.contestant = contestant.name
                        runs.append(run)
            self.results.overheads += overheads_of(runs, path.stem, stand)
        finally:
            stand.close()

    def _conclude(self) -> None:
        results = self.results
        results.figures = figures_of(results)
        results.goals = goals_of(results)
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
    """Our share of the rounds that no draft model worked in, by contestant."""
    found = []
    for name in dict.fromkeys(run.contestant for run in runs):
        mine = [run for run in runs if run.contestant == name and run.forward_s > 0]
        forward = sum(run.forward_s for run in mine)
        if forward:
            share = sum(run.round_s for run in mine) / forward - 1
            rounds = sum(run.rounds or 0 for run in mine)
            found.append(Overhead(model, stand.target.vocabulary.size, name, rounds, share))
    return found


def chosen_for_sweep(labels: Sequence[str], contestants: Sequence[Contestant]) -> list[Contestant]:
    """The sweep's contestants, of those proposers that take part at all."""
    taking_part = {contestant.proposer for contestant in contestants}
    return [c for c in sweep_contestants(labels) if c.proposer in taking_part]


def _known_workloads(order: Order) -> tuple[str, ...]:
    names = order.workloads or (QUICK_WORKLOADS if order.quick else tuple(WORKLOADS))
    for name in names:
        if name not in WORKLOADS:
            raise InvalidOptions(
                unknown_key("workload", name, list(WORKLOADS)), f"Choose among: {', '.join(WORKLOADS)}."
            )
    return tuple(dict.fromkeys(names))


def model_paths(order: Order, tell: Tell) -> dict[str, Path]:
    """By role; the bundled pair is inflated, the draft once per cost ratio."""

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
