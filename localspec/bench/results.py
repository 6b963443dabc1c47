"""The document of a benchmark's results, as ``localspec bench --json`` writes it.

Ratios compare figures of one run of the benchmark, measured interleaved; absolute times of
different documents are not comparable. Times are seconds unless a name says otherwise.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from localspec import home
from localspec.errors import LocalspecError

SCHEMA = 1

PLAIN, CONTROL = "none", "none (again)"
"""plain decoding, and plain decoding once more: the difference between the two is noise"""


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
    """The machine of a run. ``threads`` is the backend's setting; 0: its own choice."""

    cpu: str
    cores: int
    memory: int
    system: str
    threads: int
    versions: dict[str, str]


class Setting(msgspec.Struct, frozen=True):
    """The settings of a run. ``budget_s``: seconds after which only each workload's first case was begun.

    ``cases``: the number of cases of each workload; None: all.
    """

    runs: int
    quick: bool
    workloads: tuple[str, ...]
    n_ctx: int
    budget_s: float | None = None
    cases: int | None = None


class Contestant(msgspec.Struct, frozen=True):
    """A contestant: a proposer of localspec, or a reference.

    ``k`` None: the controller chose the length; ``draft`` is the draft model's label.
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
    and position in a draft, ``[offered, accepted]``; ``sources`` the answer's tokens by proposer.
    ``exact``: at temperature 0 or with a seed, where all texts must equal that of plain decoding.
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
        """The request's identity: (workload, case, turn)."""
        return self.workload, self.case, self.turn

    @property
    def tokens_per_s(self) -> float | None:
        """Decoding speed; None for an answer of one token."""
        return (self.completion_tokens - 1) / self.decode_s if self.decode_s > 0 else None


class Ceiling(msgspec.Struct, frozen=True):
    """Seconds of the two oracles for one request: see :mod:`localspec.bench.oracle`.

    The router oracle may use the draft model labelled ``draft``.
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


class Results(msgspec.Struct, kw_only=True):
    """The document. ``stopped`` is the reason why figures are missing; None: the run is complete.

    ``failures`` are the errors of contestants that were not measured any further, by name; ``left_out`` the
    cases that a quick run had no time for. ``peak_memory``: the largest number of bytes of the benchmark's
    own process, with all its models; without llama-server, a process of its own.
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
    figures: list[Figure] = []
    peak_memory: int = 0
    stopped: str | None = None
    failures: dict[str, str] = {}
    left_out: list[str] = []

    @property
    def has_something(self) -> bool:
        """True if the document has figures that are worth keeping."""
        return bool(self.figures)


def write_whole(path: Path, text: str) -> None:
    """Write a file at once or not at all; raises :class:`LocalspecError`."""
    try:
        home.write_private(path, text)
    except OSError as error:
        raise LocalspecError(
            f"{path} cannot be written: {error.strerror}",
            f"Free space or permissions are missing in {path.parent}: choose a file elsewhere.",
        ) from None
