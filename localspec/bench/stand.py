"""The test stand: models that are loaded once, and engines around them that begin empty."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from localspec.backends.base import Backend, Logits, Span, Vocabulary
from localspec.backends.rounding import PRESUMED, measure_rounding, set_rounding
from localspec.bench.results import Contestant, Model
from localspec.bench.scratch import VOCABULARY
from localspec.engine.engine import Engine
from localspec.engine.events import RoundPlayed
from localspec.engine.idle import WIDEST, measure_costs
from localspec.engine.learning import Learning
from localspec.engine.load import open_backend
from localspec.memory.memory import Memory
from localspec.models.directory import read_directory
from localspec.models.model import model_at
from localspec.models.pairing import check_pair
from localspec.models.vocabulary import read_tokens
from localspec.protocol.engine_config import EngineConfig
from localspec.protocol.requests import Request
from localspec.protocol.results import Result
from localspec.speculation.costs import CostCurve

TARGET = "target"

Tell = Callable[[str, float], None]
"""a callback for progress: (name of the stage, fraction 0 to 1)"""


class Lent:
    """A loaded model lent to one engine: when that frees it, its sequences are closed and it stays loaded.

    ``spent_s`` are the seconds of its forwards.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._open: set[int] = set()
        self.spent_s = 0.0
        self.name, self.model, self.description = backend.name, backend.model, backend.description
        self.capabilities, self.defaults = backend.capabilities, backend.defaults

    @property
    def vocabulary(self) -> Vocabulary:
        return self._backend.vocabulary

    def open(self) -> int:
        sequence = self._backend.open()
        self._open.add(sequence)
        return sequence

    def forward(self, batch: Sequence[Span]) -> Logits:
        started = time.perf_counter()
        logits = self._backend.forward(batch)
        logits.argmax()  # waits for a device, which computes in the background
        self.spent_s += time.perf_counter() - started
        return logits

    def rollback(self, sequence: int) -> int | None:
        return self._backend.rollback(sequence)

    def reach(self, sequence: int, length: int) -> int:
        return self._backend.reach(sequence, length)

    def truncate(self, sequence: int, length: int) -> int:
        return self._backend.truncate(sequence, length)

    def mark(self, sequence: int, *, beside: bool = False) -> None:
        self._backend.mark(sequence, beside=beside)

    def fork(self, sequence: int, length: int) -> int:
        copy = self._backend.fork(sequence, length)
        self._open.add(copy)
        return copy

    def preempt(self, on: bool) -> None:
        self._backend.preempt(on)

    def save(self, sequence: int) -> bytearray:
        return self._backend.save(sequence)

    def restore(self, state: bytearray) -> int:
        copy = self._backend.restore(state)
        self._open.add(copy)
        return copy

    def close(self, sequence: int) -> None:
        self._backend.close(sequence)
        self._open.discard(sequence)

    def length(self, sequence: int) -> int:
        return self._backend.length(sequence)

    def free(self) -> None:
        for sequence in list(self._open):
            self.close(sequence)


class Answered(NamedTuple):
    """One request played to its end; ``cpu_s`` is that of all threads of this process."""

    prompt: list[int]
    output: list[int]
    result: Result
    total_s: float
    cpu_s: float
    watched: Watch


class Watch:
    """An observer of rounds; sums over all but the first, which includes the prompt's forward.

    ``round_s`` is without the draft model's forwards, ``forward_s`` the time of the target's.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.rounds: list[RoundPlayed] = []
        self.round_s = self.forward_s = 0.0
        self._before = 0.0, 0.0

    def __call__(self, played: RoundPlayed) -> None:
        now = _spent(self._engine.target), _spent(self._engine.draft)
        if self.rounds:
            self.forward_s += now[0] - self._before[0]
            self.round_s += played.ms / 1000 - (now[1] - self._before[1])
        self.rounds.append(played)
        self._before = now


def _spent(backend: Backend | None) -> float:
    return backend.spent_s if isinstance(backend, Lent) else 0.0


class Stand:
    """A target and its draft models by label, loaded until :meth:`close`."""

    def __init__(self, target: Backend, drafts: Mapping[str, Backend], config: EngineConfig) -> None:
        self.target, self.drafts, self.config = target, dict(drafts), config
        self.costs: dict[str, CostCurve] = {}
        """cost curves by role, as an engine measures them when it is idle"""

    def measure_costs(self, tell: Tell) -> None:
        """Measure the cost of forwards, for all later engines."""
        for role, backend in {TARGET: self.target, **self.drafts}.items():
            tell(f"cost of a forward: {role}", 0.0)
            costs = self.costs[role] = CostCurve(backend.description)
            for _ in measure_costs(backend, costs, widest=WIDEST if role == TARGET else 1):
                pass

    @contextmanager
    def engine(self, contestant: Contestant, memory: Path | None = None) -> Iterator[Engine]:
        """An engine for one contestant: no cached prefixes, nothing learnt but the cost of forwards.

        ``memory`` is the directory of the n-gram memory; None: without one.
        """
        config = self.config
        if contestant.ngram is not None:
            n = contestant.ngram
            config = msgspec.structs.replace(config, ngram_min=n, ngram_max=n)
        target = Lent(self.target)
        draft = Lent(self.drafts[contestant.draft]) if contestant.draft is not None else None
        engine = Engine(
            target, draft, config=config, learning=self._learning(target, draft, contestant, memory)
        )
        try:
            yield engine
        finally:
            engine.close()

    def _learning(
        self, target: Lent, draft: Lent | None, contestant: Contestant, memory: Path | None
    ) -> Learning:
        table = None if memory is None else Memory(memory, VOCABULARY, target.vocabulary.piece)
        learning = Learning(target, draft, memory=table)
        for costs, role in ((learning.costs, TARGET), (learning.draft_costs, contestant.draft)):
            if costs is not None and role in self.costs:
                costs.restore(self.costs[role].state())
        return learning

    def close(self) -> None:
        """Free all models."""
        for backend in (self.target, *self.drafts.values()):
            backend.free()


def load_stand(target: Path, drafts: Mapping[str, Path], config: EngineConfig, tell: Tell) -> Stand:
    """Load the models; raises what loading raises, with all models closed."""
    texts = read_tokens(model_at(target))
    for draft in drafts.values():
        check_pair(texts, read_tokens(model_at(draft)))
    opened: list[Backend] = []
    try:
        for number, (role, path) in enumerate({TARGET: target, **drafts}.items()):
            tell(f"loading {role}", number / (len(drafts) + 1))
            opened.append(open_backend(model_at(path), config, measured=False))
        tell("measuring the target's rounding", 0.9)
        # Without a time limit: the benchmark counts divergences.
        set_rounding(opened[0], measure_rounding(opened[0], within_s=math.inf) or PRESUMED)
    except BaseException:
        for model in opened:
            model.free()
        raise
    return Stand(opened[0], dict(zip(drafts, opened[1:], strict=True)), config)


def as_contestant(request: Request, contestant: Contestant) -> Request:
    """``request`` with the contestant's proposer and length."""
    options = msgspec.structs.replace(request.options, proposer=contestant.proposer, k=contestant.k)
    return msgspec.structs.replace(request, options=options)


def answer(engine: Engine, request: Request) -> Answered:
    """Play one request, and the engine's idle work after it; raises the error that ends it."""
    engine.on_round = watch = Watch(engine)
    cpu, started = time.process_time(), time.perf_counter()
    sequence = engine.submit(request)
    while not sequence.ended:
        engine.step()
    total_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    last = sequence.events[-1]
    if not isinstance(last, Result):
        raise sequence.error or AssertionError("a request ends with a result or an error")
    while engine.rest():
        pass
    prompt, output = sequence.tokens[: sequence.prompt_length], sequence.tokens[sequence.prompt_length :]
    return Answered(prompt, output, last, total_s, cpu_s, watch)


def model_facts(role: str, path: Path) -> Model:
    """The facts that identify a model file."""
    facts = model_at(path).description
    files = read_directory(path).weights if facts.format == "mlx" else (path,)
    sha256 = hashlib.sha256()
    for each in files:
        with each.open("rb") as file:
            while piece := file.read(1 << 20):
                sha256.update(piece)
    digest = sha256.hexdigest()
    return Model(role, facts.id, facts.size, facts.quantisation, facts.parameters, facts.vocab_fp, digest)
