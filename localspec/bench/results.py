"""Everything a benchmark measured, as ``localspec bench --json`` writes it.

One document. Ratios compare what ran in one run of the benchmark, interleaved; absolute times of
different documents are not comparable. Times are seconds unless a name says otherwise.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from localspec import home
from localspec.errors import InvalidOptions, LocalspecError

SCHEMA = 1

PLAIN, CONTROL = "none", "none (again)"
"""plain decoding, and plain decoding once more: what differs between the two is noise"""


class Model(msgspec.Struct, frozen=True):
    """One model file. ``role`` is ``target`` or the label of a draft model."""

    role: str
    name: str
    size: int
    quantisation: str | None
    parameters: int | None
    vocab_fp: str | None
    sha256: str


class Machine(msgspec.Struct, frozen=True):
    """Where it ran. ``threads`` is what the backend was told; 0 is its own choice."""

    cpu: str
    cores: int
    memory: int
    system: str
    threads: int
    versions: dict[str, str]


class Setting(msgspec.Struct, frozen=True):
    """How it was run. ``budget_s``: after this many seconds no case was begun but each workload's first.

    ``cases``: of each workload only so many; None: all.
    """

    runs: int
    quick: bool
    workloads: tuple[str, ...]
    n_ctx: int
    budget_s: float | None = None
    cases: int | None = None


class Contestant(msgspec.Struct, frozen=True):
    """Who was measured: a proposer of ours, or a reference.

    ``k`` None: the length was chosen by the controller; ``draft`` is the draft model's label.
    ``ngram``: the only n-gram length that prompt lookup searches for.
    """

    name: str
    proposer: str = PLAIN
    k: int | None = None
    draft: str | None = None
    ngram: int | None = None
    reference: bool = False


class Run(msgspec.Struct, kw_only=True):
    """One request, once.

    ``repeat`` counts from 0. ``decode_s`` is first token to last. ``round_s`` and ``forward_s`` are sums
    over all rounds but the first, without the forwards of a draft model. ``survival`` is, by proposer
    and position in a draft, ``[offered, accepted]``; ``sources`` the answer's tokens by who guessed them.
    ``exact``: at temperature 0 or with a seed, where everybody's text must be plain's.
    """

    workload: str
    case: str
    turn: int
    contestant: str
    repeat: int
    prompt_tokens: int
    completion_tokens: int
    text_hash: str
    ttft_s: float | None
    decode_s: float
    total_s: float
    cpu_s: float | None = None
    rounds: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    tokens_per_round: float | None = None
    time_saved_s: float | None = None
    rechecks: int = 0
    propose_s: float = 0.0
    round_s: float = 0.0
    forward_s: float = 0.0
    exact: bool = True
    survival: dict[str, list[list[int]]] = {}
    sources: dict[str, int] = {}

    @property
    def request(self) -> tuple[str, str, int]:
        """What was asked: (workload, case, turn)."""
        return self.workload, self.case, self.turn

    @property
    def tokens_per_s(self) -> float | None:
        """Decoding speed; None for an answer of one token."""
        return (self.completion_tokens - 1) / self.decode_s if self.decode_s > 0 else None


class Ceiling(msgspec.Struct, frozen=True):
    """What the two oracles would need for one request: see :mod:`localspec.bench.oracle`.

    The router's may use the draft model labelled ``draft``.
    """

    workload: str
    case: str
    turn: int
    draft: str | None
    tokens: int
    plain_s: float
    router_s: float
    truth_s: float

    @property
    def request(self) -> tuple[str, str, int]:
        """As :attr:`Run.request`."""
        return self.workload, self.case, self.turn


class Curve(msgspec.Struct, frozen=True):
    """Seconds of a forward by its width in tokens, behind ``context`` tokens; medians."""

    role: str
    context: int
    seconds: dict[int, float]


class ProposeCost(msgspec.Struct, frozen=True):
    """Microseconds per propose and observe at a length of context, without a model."""

    proposer: str
    context: int
    microseconds: float


class Overhead(msgspec.Struct, frozen=True):
    """(round - forward) / forward of one contestant, on one model; ``vocabulary`` its tokens."""

    model: str
    vocabulary: int
    contestant: str
    rounds: int
    share: float


class TwoUp(msgspec.Struct, frozen=True):
    """A chat streaming while completions arrive.

    ``completion_alone_s`` and ``completion_s`` are medians, ``*_p95_s`` are what one in twenty takes longer
    than; ``*_alone_*`` without the other. ``share`` is the completions' part of the time if they ran alone.
    ``diverged``: exact requests whose text was another one than alone.
    """

    contestant: str
    completions: int
    completion_alone_s: float
    completion_s: float
    chat_alone_s_per_token: float
    chat_s_per_token: float
    share: float
    diverged: int = 0
    completion_alone_p95_s: float | None = None
    completion_p95_s: float | None = None


class Restart(msgspec.Struct, frozen=True):
    """``edit-long`` after a restart.

    ``memory`` is ``kept`` (by this model), ``empty``, or ``other`` (filled by the draft model);
    shares are of output tokens that came from memory, and times per output token, over all turns and
    over first turns: an empty memory has learnt the first turn by the second.
    ``diverged``: exact requests whose text was not plain decoding's.
    """

    memory: str
    repeat: int
    share: float
    first_turn_share: float
    s_per_token: float
    diverged: int = 0
    first_turn_s_per_token: float | None = None


class Figure(msgspec.Struct, frozen=True):
    """One contestant on one workload, from medians over the repeats.

    ``speed`` is tok/s over plain's. ``low`` and ``high`` are the slowest and fastest request of at
    least 64 tokens (None without one); ``repeats`` the speeds of every single repeat.
    """

    workload: str
    contestant: str
    requests: int
    speed: float
    low: float | None
    high: float | None
    repeats: list[float]
    acceptance: float | None
    tokens_per_round: float | None
    router_share: float | None
    truth_share: float | None
    ttft_s: float | None
    cpu_s_per_token: float | None
    time_saved_s: float | None
    diverged: int


class Goal(msgspec.Struct, frozen=True):
    """A figure against what it should be; ``met`` None: unknown. ``note`` says why not met."""

    name: str
    figure: str
    goal: str
    met: bool | None
    note: str = ""


class Results(msgspec.Struct, kw_only=True):
    """The document. ``stopped`` says why something is missing; None: it came to its end.

    ``failures`` is what was wrong with contestants that took no further part, by name; ``left_out`` the
    cases that a quick run had no time for. ``peak_memory``: the most bytes that the benchmark's own
    process held, with all its models; llama-server, a process of its own, is not in it.
    """

    schema: int = SCHEMA
    started: str
    duration_s: float = 0.0
    machine: Machine
    models: list[Model]
    setting: Setting
    contestants: list[Contestant] = []
    runs: list[Run] = []
    ceilings: list[Ceiling] = []
    curves: list[Curve] = []
    propose_costs: list[ProposeCost] = []
    overheads: list[Overhead] = []
    two_up: list[TwoUp] = []
    restarts: list[Restart] = []
    figures: list[Figure] = []
    goals: list[Goal] = []
    peak_memory: int = 0
    stopped: str | None = None
    failures: dict[str, str] = {}
    left_out: list[str] = []

    @property
    def has_something(self) -> bool:
        """Whether anything was measured that is worth keeping."""
        return bool(self.figures or self.restarts or self.two_up)


def encode(results: Results) -> bytes:
    """The document as JSON."""
    return msgspec.json.encode(results)


def read_results(path: Path) -> Results:
    """A document from a file.

    Raises :class:`InvalidOptions` for a file that cannot be read, is no such document or has another
    schema.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InvalidOptions(f"{path} cannot be read: {error.strerror}", "Give a readable file.") from None
    remedy = "Give a file that `localspec bench --json` of this version wrote."
    try:
        schema = msgspec.json.decode(raw, type=_Schema).schema
        if schema != SCHEMA:
            raise InvalidOptions(f"{path} has schema {schema}, not {SCHEMA}", remedy)
        return msgspec.json.decode(raw, type=Results)
    except msgspec.DecodeError as error:
        raise InvalidOptions(f"{path} holds no benchmark results: {error}", remedy) from None


class _Schema(msgspec.Struct):
    schema: int


def write_whole(path: Path, text: str) -> None:
    """Write a file at once or not at all; raises :class:`LocalspecError`."""
    try:
        home.write_private(path, text)
    except OSError as error:
        raise LocalspecError(f"{path} cannot be written: {error.strerror}", "Name another file.") from None
