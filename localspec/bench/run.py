"""Requests in turn: every case is answered plainly, twice by the proposer, and plainly again.

All run on one engine, greedily, so that the texts can be compared. Other work of the machine slows both down
alike; the difference of the two plain answers shows how much there was. Ratios compare answers of one run,
which were given in turn; speeds of different documents are not comparable.
"""

from __future__ import annotations

import statistics
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path

import msgspec

from localspec.engine.engine import Engine
from localspec.engine.load import OverNodes, Progress, load_engine
from localspec.engine.sequence import Sequence as Generation
from localspec.errors import InvalidOptions
from localspec.models.machine import processor_name
from localspec.models.pair import Pair
from localspec.protocol.options import NONE, Options, unknown_key
from localspec.protocol.requests import ChatPrompt, EngineConfig, Message, Prompt, Request, Result, TextPrompt
from localspec.ranks.backend import open_over_nodes
from localspec.ranks.peer import Lost

WIDTHS = 1, 2, 3, 5, 9, 17
"""widths of forwards whose seconds are among the results: of drafts of 0, 1, 2, 4, 8 and 16 tokens"""


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    workload: str
    prompts: tuple[str, ...]
    raw: bool = False
    taught: bool = False


class Order(msgspec.Struct, frozen=True):
    """The choice of measurements; no ``workloads``: all. Of ``config`` the RPC servers take no part."""

    pair: Pair
    config: EngineConfig
    proposer: str
    k: int | None = None
    workloads: tuple[str, ...] = ()
    tokens: int = 128
    runs: int = 2


class BenchRun(msgspec.Struct, frozen=True):
    """A case answered four times: tokens per second, and counts of the proposer's two answers. ``decoded``
    are their tokens but the first ones, which the prompt's forward gives. ``equal``: all four texts are the
    same."""

    workload: str
    case: int
    plain: tuple[float, float]
    speculative: tuple[float, float]
    decoded: int
    rounds: int
    drafted: int
    accepted: int
    equal: bool

    @property
    def ratio(self) -> float:
        return sum(self.speculative) / sum(self.plain)


class Figure(msgspec.Struct, frozen=True):
    """The figures of a workload over its runs: medians, and the slowest ``ratio``."""

    workload: str
    plain: float
    speculative: float
    ratio: float
    worst: float
    acceptance: float | None
    tokens_per_round: float
    equal: bool


class Results(msgspec.Struct, kw_only=True):
    """The document of ``--json``. ``left_out``: workloads without a run that has a speed. ``noise`` is the
    largest difference of two plain answers of one run, as a share. ``stopped``: Ctrl-C ended the measurement
    early. ``rounds_s``: the seconds of a forward by its width."""

    model: str
    draft: str | None
    backend: str
    proposer: str
    machine: str
    stopped: bool = False
    noise: float | None = None
    left_out: list[str] = []
    figures: list[Figure] = []
    runs: list[BenchRun] = []
    rounds_s: dict[int, float] = {}

    def conclude(self) -> None:
        self.figures = figures_of(self.runs)
        self.noise = max((max(run.plain) / min(run.plain) - 1 for run in self.runs), default=None)


def figures_of(runs: Sequence[BenchRun]) -> list[Figure]:
    found = []
    for workload in dict.fromkeys(run.workload for run in runs):
        mine = [run for run in runs if run.workload == workload]
        drafted, rounds = sum(run.drafted for run in mine), sum(run.rounds for run in mine)
        found.append(
            Figure(
                workload=workload,
                plain=statistics.median(statistics.mean(run.plain) for run in mine),
                speculative=statistics.median(statistics.mean(run.speculative) for run in mine),
                ratio=statistics.median(run.ratio for run in mine),
                worst=min(run.ratio for run in mine),
                acceptance=sum(run.accepted for run in mine) / drafted if drafted else None,
                tokens_per_round=sum(run.decoded for run in mine) / rounds,
                equal=all(run.equal for run in mine),
            )
        )
    return found


def load_cases(workloads: tuple[str, ...] = ()) -> list[Case]:
    """The cases of these workloads, or all; raises :class:`InvalidOptions` for an unknown one."""
    text = files("localspec.bench").joinpath("workloads.toml").read_text("utf-8")
    cases = msgspec.convert(tomllib.loads(text)["case"], list[Case])
    known = list(dict.fromkeys(case.workload for case in cases))
    for name in workloads:
        if name not in known:
            raise InvalidOptions(unknown_key("workload", name, known), f"Choose among: {', '.join(known)}.")
    return [case for case in cases if case.workload in (workloads or known)]


@contextmanager
def open_engine(order: Order, tell: Progress, over_nodes: OverNodes | None = None) -> Iterator[Engine]:
    """The engine of a daemon, with an empty n-gram memory that is removed afterwards, all costs measured;
    ``over_nodes``: see :func:`localspec.engine.load.load_target`."""
    with (
        tempfile.TemporaryDirectory(prefix="localspec-bench-") as memory,
        load_engine(
            order.pair,
            config=msgspec.structs.replace(order.config, rpc=()),
            progress=lambda part, fraction: tell(f"loading the {part} model", fraction),
            memory=Path(memory),
            over_nodes=over_nodes,
        ) as engine,
    ):
        tell("measuring the cost of forwards", 0.0)
        rest(engine)
        yield engine


def rest(engine: Engine) -> None:
    while engine.rest():
        pass


def answer(engine: Engine, prompt: Prompt, options: Options) -> tuple[Generation, Result]:
    """Play one request to its end; raises the error that ends it."""
    sequence = engine.submit(Request(prompt=prompt, options=options))
    while not sequence.ended:
        engine.step()
    last = sequence.events[-1]
    if not isinstance(last, Result):
        raise sequence.error or AssertionError("a request ends with a result or an error")
    rest(engine)
    return sequence, last


class Player:
    def __init__(self, engine: Engine, order: Order) -> None:
        self._engine, self._order = engine, order
        self._plain = Options(proposer=NONE, temperature=0.0, max_tokens=order.tokens, remember=False)

    def prepare(self, case: Case) -> Prompt:
        """Answer all prompts of a case plainly, so that the last one is in the KV cache, and return that."""
        messages: tuple[Message, ...] = ()
        for turn, text in enumerate(case.prompts):
            messages += (Message("user", text),)
            prompt = TextPrompt(text) if case.raw else ChatPrompt(messages)
            is_learnt = case.taught and turn < len(case.prompts) - 1
            options = msgspec.structs.replace(self._plain, remember=is_learnt)
            _, result = answer(self._engine, prompt, options)
            messages = () if case.taught else (*messages, Message("assistant", result.text))
        return prompt

    def measure(self, number: int, case: Case, prompt: Prompt) -> BenchRun | None:
        """Answer in turn; None if an answer is of one token and has no speed."""
        fast = msgspec.structs.replace(self._plain, proposer=self._order.proposer, k=self._order.k)
        turns = (self._plain, fast, fast, self._plain)
        results = [answer(self._engine, prompt, options)[1] for options in turns]
        rates = [result.stats.decode_tokens_per_s or 0.0 for result in results]
        if not all(rates):
            return None
        own = [result.stats for result in results[1:3]]
        return BenchRun(
            workload=case.workload,
            case=number,
            plain=(rates[0], rates[3]),
            speculative=(rates[1], rates[2]),
            decoded=sum(result.completion_tokens - 1 for result in results[1:3]),
            rounds=sum(stats.rounds for stats in own),
            drafted=sum(stats.drafted for stats in own),
            accepted=sum(stats.accepted for stats in own),
            equal=len({result.text for result in results}) == 1,
        )


def measure(order: Order, tell: Progress, lost: Lost = lambda error: None) -> Results:
    """Measure all cases, one after the other; after Ctrl-C, return what there is. ``lost``: see
    :func:`open_over_nodes`."""
    cases, draft = load_cases(order.workloads), order.pair.draft
    results = Results(
        model=order.pair.target.own_name,
        draft=None if draft is None else draft.own_name,
        backend=order.pair.backend,
        proposer=order.proposer,
        machine=processor_name(),
    )
    try:
        with open_engine(order, tell, partial(open_over_nodes, lost=lost)) as engine:
            seconds = engine.learning.costs.seconds
            results.rounds_s = {width: seconds(width) for width in WIDTHS}
            player = Player(engine, order)
            for number, case in enumerate(cases):
                tell(f"measuring {case.workload}", number / len(cases))
                prompt = player.prepare(case)
                for _ in range(order.runs):
                    if (run := player.measure(number, case, prompt)) is not None:
                        results.runs.append(run)
    except KeyboardInterrupt:
        if not results.runs:
            raise
        results.stopped = True
    measured = {run.workload for run in results.runs}
    results.left_out = list(dict.fromkeys(c.workload for c in cases if c.workload not in measured))
    results.conclude()
    return results
