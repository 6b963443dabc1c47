"""Plays a case with speculation, and each of its requests plainly: the texts must be the same."""

from __future__ import annotations

import random
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol, cast

import hypothesis
from hypothesis import HealthCheck, given, settings

from localspec.backends.base import Backend
from localspec.engine.engine import Engine
from localspec.engine.learning import Learning
from localspec.engine.sequence import Sequence
from localspec.memory.memory import Memory
from localspec.memory.ngrams import MemoryText
from localspec.protocol.options import Options
from localspec.protocol.requests import EngineConfig, Request, TextPrompt
from localspec.speculation.costs import CostCurve
from tests.hostile import Dying, Hostile, family
from tests.parity.cases import FAST, KINDS, PRICES, Asked, Case, Texts, ToyModel, cases
from tests.toy import ToyBackend
from tests.toys import answer, coarse, respelt, share_always, small_markov

STRICT: dict[str, Any] = {"exactness": "strict"}
FIXED = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))
PATIENCE = 3000
"""steps after which a case is taken to hang"""


class Priced(CostCurve):
    """Costs that are known and stay as they are: item k is a forward of k + 1 tokens."""

    def __init__(self, widths: Seq[float]) -> None:
        super().__init__()
        last = widths[-1]
        self._seconds = [0.0, *widths, *(last * (1 + 0.2 * i) for i in range(1, 65 - len(widths)))]

    def seconds(self, width: int, context: int = 0) -> float:
        return self._seconds[min(width, 64)]

    def line(self, context: int) -> list[float]:
        return list(self._seconds)

    def observe(self, width: int, context: int, seconds: float) -> None:
        """Nothing changes."""

    def knows(self, width: int, context: int) -> bool:
        return True

    def widest(self, context: int = 0) -> int:
        return 21


class World(Protocol):
    """A source of target and draft models."""

    def target(self) -> Backend:
        """With nothing in its cache."""

    def draft(self) -> Backend: ...


class Toys:
    """New toys every time."""

    def __init__(self, model: ToyModel) -> None:
        self._model = model

    def _rule(self, seed: int) -> Any:
        model = self._model
        rule = small_markov(seed, order=model.order, sharpness=model.sharpness)
        if model.grain:
            rule = coarse(rule, model.grain)
        return respelt(rule, model.spelling) if model.spelling else rule

    def target(self) -> Backend:
        model = self._model
        made = ToyBackend(
            self._rule(model.seed), n_ctx=model.n_ctx, rollback=model.rollback, max_sequences=model.sequences
        )
        made.make_noisy(model.noise, exact_width=model.exact_width)
        return made

    def draft(self) -> Backend:
        # Half of the drafts know the target well, so that some are accepted at length.
        model = self._model
        seed = model.seed if model.seed % 2 else model.seed + 1
        return ToyBackend(self._rule(seed), n_ctx=model.n_ctx, max_sequences=model.sequences)


class Loaded:
    """Loaded models, emptied every time: loading takes longer than a case."""

    def __init__(self, target: Backend, draft: Backend) -> None:
        self._target, self._draft = target, draft

    def target(self) -> Backend:
        return emptied(self._target)

    def draft(self) -> Backend:
        return emptied(self._draft)


def emptied(backend: Backend) -> Backend:
    for sequence in range(backend.capabilities.max_sequences):
        try:
            backend.close(sequence)
        except KeyError:
            continue
    return backend


@dataclass
class Tally:
    """Counts over many cases."""

    cases: int = 0
    requests: int = 0
    cancelled: int = 0
    tokens: int = 0
    cached: int = 0
    drafted: int = 0
    accepted: int = 0
    rounded: int = 0
    degraded: int = 0
    finishes: dict[str, int] = field(default_factory=dict)

    def count(self, sequence: Sequence) -> None:
        stats = sequence.stats
        self.requests += 1
        self.cancelled += sequence.finish == "cancelled"
        self.tokens += len(answer(sequence))
        self.cached += sequence.cached
        self.drafted += stats.drafted
        self.accepted += stats.accepted
        self.rounded += stats.rounded_tokens
        self.degraded += sequence.proposer != sequence.settings.proposer and stats.drafted > 0
        finish = sequence.finish or "error"
        self.finishes[finish] = self.finishes.get(finish, 0) + 1

    def __str__(self) -> str:
        endings = ", ".join(f"{n} {name}" for name, n in sorted(self.finishes.items()))
        return (
            f"{self.cases} cases, {self.requests} requests ({endings}), {self.tokens} tokens, "
            f"{self.drafted} drafted, {self.accepted} accepted, {self.cached} cached, "
            f"{self.degraded} degraded, {self.rounded} tokens that near-ties may have decided, 0 divergences"
        )

    def is_varied(self) -> bool:
        """True if drafts were right and wrong, rows rounded, prefixes reused, and endings of all kinds."""
        mixed = 0 < self.accepted < self.drafted and self.cached > 0 and self.degraded > 0
        endings = {"length", "stop", "stop_string", "context_full", "cancelled"}
        return mixed and self.rounded > 0 and endings <= self.finishes.keys()


class Truth(NamedTuple):
    """The answer of plain decoding; ``beyond`` continues it past its stop string or ``max_tokens``."""

    request: Request
    prompt: list[int]
    tokens: list[int]
    finish: str | None
    text: str
    beyond: list[int]


def play(world: World, case: Case, tally: Tally) -> None:
    """Raises AssertionError where speculation changed a text, or left a cache as it must not be."""
    before = [truth_of(world, case, ask) for ask in case.history]
    said = before[-1].prompt + before[-1].tokens if before else []
    vocabulary = world.target().vocabulary
    tail = b"".join(map(vocabulary.piece, said)).decode("utf-8", "ignore")
    asks = [replace(a, prompt=tail + a.prompt) if a.follows else a for a in case.asks]
    truths = [truth_of(world, case, ask) for ask in asks]
    hostile = [
        _hostile(i, ask, truth, world) for i, (ask, truth) in enumerate(zip(asks, truths, strict=True))
    ]
    with TemporaryDirectory() as folder:
        engine = _engine(world, case, [h for h in hostile if h], Path(folder))
        _teach(engine, case, truths)
        for ask, truth in zip(case.history, before, strict=True):
            _run(engine, [ask], [truth], [None])
        for ask, truth, sequence in zip(asks, truths, _run(engine, asks, truths, hostile), strict=True):
            compare(ask, truth, sequence)
            tally.count(sequence)
        if engine.learning.memory is not None:
            engine.learning.memory.close()
    tally.cases += 1


def truth_of(world: World, case: Case, ask: Asked) -> Truth:
    """The request alone, one token at a time, on a fresh engine."""
    limit = world.target().capabilities.n_ctx
    vocabulary = world.target().vocabulary
    prompt = vocabulary.encode(ask.prompt, special=False)[: limit - 1]
    text = b"".join(map(vocabulary.piece, prompt)).decode("utf-8", "ignore") or "a"
    options = Options(**STRICT | ask.options)
    request = Request(prompt=TextPrompt(text), options=options)
    one = _plain(world, case, request)
    beyond = one
    if ask.proposer in KINDS and (options.stop or options.max_tokens):
        whole = Options(**STRICT | ask.options | {"stop": (), "max_tokens": len(answer(one)) + 8})
        beyond = _plain(world, case, Request(prompt=request.prompt, options=whole))
    return Truth(
        request, one.tokens[: one.prompt_length], answer(one), one.finish, one.text.text, answer(beyond)
    )


def _plain(world: World, case: Case, request: Request) -> Sequence:
    engine = Engine(world.target(), config=EngineConfig(prefill_chunk=case.chunk))
    sequence = engine.submit(_with(request, proposer="none"))
    for _ in range(PATIENCE):
        if not engine.step():
            break
    assert sequence.ended and sequence.error is None, sequence.error
    return sequence


def _with(request: Request, **options: Any) -> Request:
    return Request(prompt=request.prompt, options=Options(**options).over(request.options))


def _hostile(i: int, ask: Asked, truth: Truth, world: World) -> Hostile | None:
    """Return the hostile proposer that a request names, with its true answer and a name of its own."""
    if ask.proposer not in KINDS:
        return None
    vocabulary = world.target().vocabulary
    end = min(vocabulary.end_tokens)
    members = family([*truth.beyond, end], size=vocabulary.size, end=end, prompt_length=len(truth.prompt))
    found = next(member for member in members if member.name == ask.proposer)
    found.name = f"{found.name} {i}"
    return found


def _engine(world: World, case: Case, hostile: Seq[Hostile], folder: Path) -> Engine:
    target, draft = world.target(), world.draft()
    if case.draft_lives is not None:
        draft = cast(Backend, Dying(draft, case.draft_lives))
    memory = Memory(folder, "0123456789abcdef", target.vocabulary.piece) if case.taught else None
    config = EngineConfig(prefill_chunk=case.chunk)
    learning = Learning(target, memory=memory)
    if case.prices is not None:
        learning.costs, learning.know_draft(draft).costs = Priced(PRICES[case.prices]), Priced([0.05])
    return Engine(target, draft, config=config, proposers=hostile, learning=learning)


def _teach(engine: Engine, case: Case, truths: Seq[Truth]) -> None:
    """The memory has heard these answers before: as they are, with wrong turns, or nonsense."""
    memory, rng = engine.learning.memory, random.Random(len(truths))
    if memory is None or case.taught is None:
        return
    for i, truth in enumerate(truths):
        what = case.taught[i % len(case.taught)]
        tokens = list(truth.tokens)
        if what == "false":
            tokens = [t if rng.random() < 0.7 else rng.choice(tokens) for t in tokens]
        elif what == "random":
            tokens = [rng.randrange(engine.target.vocabulary.size) for _ in tokens]
        memory.learn(MemoryText([*truth.prompt, *tokens], None, f"chat:{i}"))
    while memory.work():
        pass


def _run(
    engine: Engine, asks: Seq[Asked], truths: Seq[Truth], hostile: Seq[Hostile | None]
) -> list[Sequence]:
    """All of them, each from its step on, until all have ended."""
    share_always(engine)
    running: dict[int, Sequence] = {}
    checked: set[int] = set()
    known = {"none", "auto", "prompt-lookup", "draft"} | ({"memory"} if engine.learning.memory else set())
    for step in range(PATIENCE):
        for i, (ask, truth) in enumerate(zip(asks, truths, strict=True)):
            if ask.start == step:
                name = ask.proposer if ask.proposer in known else "none"
                running[i] = engine.submit(_with(truth.request, proposer=name, k=ask.k))
                if (mine := hostile[i]) is not None and not engine.target.capabilities.obstacle:
                    running[i].proposer = mine.name
            if ask.cancel is not None and ask.cancel == step - ask.start and i in running:
                engine.cancel(running[i].id)
        busy = engine.step()
        for sequence in running.values():
            if sequence.id not in checked:
                check_cache(engine.target, sequence, running.values())
                if sequence.ended:
                    checked.add(sequence.id)
        if not busy and len(running) == len(asks):
            return [running[i] for i in range(len(asks))]
    raise AssertionError("it does not end")


def check_cache(target: Backend, sequence: Sequence, running: Iterable[Sequence] = ()) -> None:
    """Between rounds all tokens but the newest; at the end perhaps that one too, and nothing behind it. One
    that was cancelled may have left its cache to a later one of ``running`` in the same step."""
    assert sequence.error is None, sequence.error
    left = sequence.ended and any(s.slot == sequence.slot and s.id > sequence.id for s in running)
    if sequence.slot < 0 or not sequence.prefilled or left:
        return
    try:
        length = target.length(sequence.slot)
    except KeyError:
        # Another request that ended in the same step left the same tokens, or more.
        assert sequence.ended
        return
    lags = sequence.constraint is not None  # forced tokens are fed later
    if lags or target.capabilities.replays or target.rollback(sequence.slot) is not None:
        assert length <= len(sequence.tokens)
    elif not sequence.ended:
        assert length == len(sequence.tokens) - 1
    else:
        assert len(sequence.tokens) - 1 <= length <= len(sequence.tokens)
    if isinstance(target, ToyBackend):
        assert target.tokens(sequence.slot) == sequence.tokens[:length]


def compare(ask: Asked, truth: Truth, sequence: Sequence) -> None:
    receipt = sequence.account.close(1, priced=True).exactness
    if not ask.options.keys() & FAST.keys():
        assert receipt == "exact", ask
    elif receipt != "exact":
        return
    spoken = answer(sequence)
    if sequence.finish == "cancelled":
        assert spoken == truth.tokens[: len(spoken)]
        assert truth.text.startswith(sequence.text.text) or truth.finish == "stop_string"
        return
    assert (spoken, sequence.finish, sequence.text.text) == (truth.tokens, truth.finish, truth.text), ask


def played(world: Loaded, texts: Texts, seed: int, how: settings) -> Tally:
    """Play cases of these texts, drawn by ``seed``, and return their tally; fails as :func:`play` does."""
    tally = Tally()

    @hypothesis.seed(seed)
    @how
    @given(case=cases(texts))
    def same(case: Case) -> None:
        play(world, case, tally)

    same()
    return tally
