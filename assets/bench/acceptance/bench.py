"""The benchmark with the special workloads and the goals."""

from __future__ import annotations

import msgspec

from assets.bench.acceptance.goals import goals_of
from assets.bench.acceptance.large_vocabulary import large_vocabulary_overheads
from assets.bench.acceptance.restart import MEMORY, measure_restart
from assets.bench.acceptance.results import AcceptanceResults
from assets.bench.acceptance.sweep import chosen_for_sweep
from assets.bench.acceptance.two_up import measure_two_up
from assets.bench.acceptance.workloads import RESTART, SPECIAL, SWEEP, TWO_UP, load_special
from localspec.bench.bench import Bench, Order
from localspec.bench.contestant import attempt
from localspec.bench.measure import Clock, Plan, Script, measure, record, turn_teller
from localspec.bench.results import PLAIN
from localspec.bench.stand import TARGET, Stand, Tell
from localspec.models.description import format_of


class AcceptanceBench(Bench):
    """See :class:`Bench`; ``order.workloads`` may have special ones. A quick run has those that it names."""

    kind = AcceptanceResults
    results: AcceptanceResults

    def __init__(self, order: Order, tell: Tell) -> None:
        names, special = order.workloads, () if order.quick else tuple(SPECIAL)
        if names is not None:
            special = tuple(name for name in dict.fromkeys(names) if name in SPECIAL)
            names = tuple(name for name in names if name not in SPECIAL)
        super().__init__(order._replace(workloads=names), tell)
        self._special = special
        self._sweep = chosen_for_sweep(self.labels, self.own) if SWEEP in special else []
        results = self.results
        results.contestants = list(dict.fromkeys((*results.contestants, *self._sweep)))
        workloads = (*results.setting.workloads, *special)
        results.setting = msgspec.structs.replace(results.setting, workloads=workloads)

    def measure(self, stand: Stand) -> None:
        super().measure(stand)
        if SWEEP in self._special:
            self._measure_sweep(stand)
        if TWO_UP in self._special:
            self._measure_two_up(stand)
        if RESTART in self._special and MEMORY.name not in self.results.failures:
            self._measure_restart(stand)
        if not self.order.quick and format_of(self.models[TARGET]) == "gguf":
            config = msgspec.structs.replace(self.order.config, parallel=1)
            self.results.overheads += large_vocabulary_overheads(config, self.tell)

    def conclude(self) -> None:
        super().conclude()
        self.results.goals = goals_of(self.results)

    def _recorded_special(self, stand: Stand, workload: str) -> list[Script]:
        cases = self.some(load_special(workload), len(SPECIAL[workload]))
        return record(stand, cases, turn_teller(cases, self.tell))

    def _measure_sweep(self, stand: Stand) -> None:
        scripts, failures = self._recorded_special(stand, SWEEP), self.results.failures
        clock = Clock(self.budget_s)
        plan = Plan(scripts, lambda workload, repeat: self._sweep, self.order.runs, clock, failures)
        for run in measure(stand, plan, {}, self.tell):
            self.results.runs.append(run)

    def _measure_two_up(self, stand: Stand) -> None:
        failures, cases = self.results.failures, self.some(load_special(TWO_UP), len(SPECIAL[TWO_UP]))
        for contestant in self.own:
            if contestant.name in (PLAIN, "auto") and contestant.name not in failures:
                with attempt(contestant, failures):
                    self.results.two_up.append(measure_two_up(stand, cases, contestant, self.tell))

    def _measure_restart(self, stand: Stand) -> None:
        scripts = self._recorded_special(stand, RESTART)
        runs = 1 if self.order.quick else self.order.runs
        with attempt(MEMORY, self.results.failures):
            for restart in measure_restart(stand, scripts, runs, self.tell):
                self.results.restarts.append(restart)
