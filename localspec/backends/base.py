"""The contract of a backend: four verbs over sequences of tokens, the vocabulary, and its rounding.

Backends do not depend on speculation; of a backend, speculation uses nothing but this file. Names of special
tokens that users typed are encoded as text, even where a tokenizer would not.

Rounding: a forward of several tokens may use other kernels than one of a single token, which add in another
order. That differs by type of weights, device and build of a backend's library. So it is tried on this
machine, once per model, which forwards give rows that equal those of plain decoding to the bit, and at what
cost.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Container, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise, takewhile
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.errors import EngineBusy, EngineError, InvalidOptions
from localspec.protocol.options import Options, parse_options

NEVER = "(?!)"


class TypedNames:
    """Encodes texts so that none of the special tokens ``names`` comes out. These are the tokens that a
    tokenizer finds by name even with special tokens switched off, because the model's files list them as
    added or user-defined, but not as special."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self._tokens = names.keys()
        self._names = re.compile(f"(?={any_of(sorted(names.values()))})")

    def encode(self, text: str, encode: Callable[[str], list[int]]) -> list[int]:
        """Return the tokens of ``text``, made by ``encode``, with none of the special ones."""
        tokens = encode(text)
        if not self._tokens or self._tokens.isdisjoint(tokens):
            return tokens
        # A cut behind the first character of a name leaves no whole name on either side.
        cuts = [0, *(match.start() + 1 for match in self._names.finditer(text)), len(text)]
        return [token for start, end in pairwise(cuts) for token in encode(text[start:end])]


def any_of(names: list[str]) -> str:
    """A pattern of the longest of sorted ``names``: a tree of characters, as thousands may begin alike."""
    if not names:
        return NEVER
    rests = groupby((name for name in names if name), lambda name: name[0])
    branches = [re.escape(first) + any_of([name[1:] for name in group]) for first, group in rests]
    tree = branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
    return tree if names[0] else f"(?:{tree})?" if branches else ""


ANY_WIDTH = 1 << 30
"""more tokens than any forward has"""
HASHED_BYTES = 1 << 20
"""bytes at the end of a file of weights that stand for all"""

Rows = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The limits and guarantees of a loaded model."""

    n_ctx: int
    """tokens that one sequence can hold; every sequence has KV cells of its own"""
    max_sequences: int
    max_batch: int
    """tokens that one forward can append, over all its spans"""
    replays: bool = False
    """True if `truncate` may keep fewer tokens than requested, which the caller then feeds again"""
    exact_batches: bool = True
    """True if a row is the same when other sequences share its forward"""
    batches: bool = True
    """True if spans of a forward are computed together, as wide as the longest; False: one by one"""
    consecutive: bool = False
    """True if only sequences with consecutive numbers are computed together"""
    obstacle: str = ""
    """the reason why no token can be rolled back, and speculation is off; empty: tokens can be rolled back"""
    exact_width: int = ANY_WIDTH
    """rounds of up to this many tokens give the rows of 1-wide forwards, to the bit"""
    fast_alone: bool = False
    """True if a 1-wide forward of spans that need not be exact is faster, and rounded otherwise"""
    splits_contexts: bool = True
    """True if the rows of rounds may be computed otherwise behind a long context than behind a short one"""
    saves: bool = False
    """True if a sequence can be saved as bytes"""
    offloaded_bytes: int = 0
    """bytes of weights in a GPU's memory"""
    settling: int = 0
    """first forwards of a width that take longer than the next ones of this width"""
    trained_ctx: int | None = None
    """tokens of context that the model was trained for; None: unknown"""


class Interrupted(Exception):
    """A forward was preempted, see :meth:`Backend.preempt`; nothing was appended."""


class Span(NamedTuple):
    """Part of a forward: append ``tokens`` to ``sequence``, return logits for the last ``rows`` of them.
    ``exact``: as far as the backend can, the rows do not depend on the number of tokens."""

    sequence: int
    tokens: Sequence[int]
    rows: int
    exact: bool = True


class Logits(Protocol):
    """The requested rows of one forward, in the order of its spans; valid until the next forward."""

    def argmax(self) -> Sequence[int]:
        """The most probable token of every row; the rows stay on the device."""

    def margins(self) -> Sequence[float]:
        """Top-1 minus top-2 logit of every row."""

    def choice(self, i: int) -> int | None:
        """The most probable token of row ``i``; None if its logit is not finite. Others are not examined."""

    def rows(self, start: int, stop: int) -> Rows:
        """Rows ``start:stop`` as float32, shape (stop - start, vocabulary size); a copy."""

    def row(self, i: int) -> Rows:
        """Row ``i`` as float32, shape (vocabulary size,); to be read only, and not after the next forward."""


class FimTokens(NamedTuple):
    """The special tokens of fill-in-the-middle; ``repo`` and ``sep`` are None in families without them."""

    prefix: int
    suffix: int
    middle: int
    repo: int | None = None
    sep: int | None = None


class ModelVocabulary(Protocol):
    """The tokens of a model."""

    @property
    def size(self) -> int: ...

    @property
    def bos(self) -> int | None:
        """The token that every text starts with; None if the model has none."""

    @property
    def bos_text(self) -> str:
        """The text of the token that templates call bos, even if no text starts so; empty without one."""

    @property
    def eos(self) -> int | None:
        """The token that chat templates call eos."""

    @property
    def end_tokens(self) -> frozenset[int]:
        """Tokens that end a generation (end of text, end of turn)."""

    @property
    def special_tokens(self) -> frozenset[int]:
        """Tokens that stand for no text: turn markers, end tokens, fill-in-the-middle tokens."""

    @property
    def marks(self) -> frozenset[int]:
        """Further tokens that no content may spell: those of a gap, and those that a chat template writes
        though they stand for text."""

    @property
    def fim(self) -> FimTokens | None: ...

    @property
    def chat_template(self) -> str | None:
        """The model's own Jinja template; None if its files have none."""

    def encode(self, text: str, *, special: bool) -> list[int]:
        """The tokens of ``text``, without BOS; ``special``: names such as ``<|…|>`` become special tokens.
        Several threads may call this at once."""

    def piece(self, token: int) -> bytes:
        """The bytes that ``token`` adds to the text; empty for special tokens."""

    def text_of(self, token: int) -> bytes:
        """The bytes that name ``token``, special tokens by their text, to compare two vocabularies."""


class Backend(Protocol):
    """A loaded model. Every method but :meth:`free` may raise :class:`localspec.errors.LocalspecError`.
    Sequences are small integers. One thread uses a backend at a time."""

    name: str
    model: str
    """the model's name, as the user writes it"""
    description: str
    """everything that its speed depends on: the backend's name and version, precision, size, threads"""
    capabilities: Capabilities
    defaults: Options
    """the sampling settings that the model's author recommends, where its files have some"""

    @property
    def vocabulary(self) -> ModelVocabulary: ...

    def open(self) -> int:
        """Open an empty sequence; raises :class:`EngineBusy` when none is left."""

    def forward(self, batch: Sequence[Span]) -> Logits:
        """Append every span's tokens and return the requested rows of logits. At most
        ``capabilities.max_batch`` tokens. On an error nothing has been appended."""

    def preempt(self, on: bool) -> None:
        """While on, let forwards raise :class:`Interrupted`, the one under way included; from any thread.
        A backend that cannot stop a forward ignores it."""

    def rollback(self, sequence: int) -> int | None:
        """The number of tokens of its next forward that `truncate` will be able to take back; None: any
        number. It may change from round to round."""

    def reach(self, sequence: int, length: int) -> int:
        """The largest number of first tokens, at most ``length``, that `truncate` can keep now."""

    def truncate(self, sequence: int, length: int) -> int:
        """Keep the first ``length`` tokens of ``sequence``, or fewer, as `reach` says; return how many. A
        recurrent state can only go back to where a copy was kept: before the last forward or after the last
        of its tokens, at a mark, and at the beginning."""

    def mark(self, sequence: int) -> None:
        """Let `truncate` come back to the present length, until a cut below it or the next mark."""

    def fork(self, sequence: int, length: int) -> int:
        """Open a sequence with the first ``length`` tokens of ``sequence``, or fewer, as `reach` says."""

    def save(self, sequence: int) -> bytearray:
        """The state of ``sequence`` as bytes, for :meth:`restore` of a backend of the same description;
        only where ``capabilities.saves``."""

    def restore(self, state: bytearray) -> int:
        """Open a sequence that equals, to the bit, the one that was saved as ``state``. Raises
        :class:`EngineBusy` when none is left, :class:`EngineError` for bytes of any other format."""

    def close(self, sequence: int) -> None:
        """Drop ``sequence`` and free its cells."""

    def length(self, sequence: int) -> int:
        """The number of tokens that ``sequence`` holds."""

    def free(self) -> None:
        """Free all memory; no method may be called after this."""


def top_margin(row: NDArray[np.floating[Any]]) -> float:
    """Top-1 minus top-2 of one row, without sorting or copying it."""
    top = int(row.argmax())
    sides = [side.max() for side in (row[:top], row[top + 1 :]) if len(side)]
    return float(row[top] - max(sides)) if sides else float("inf")


def first_free(taken: Container[int], capabilities: Capabilities) -> int:
    """The first number of a sequence that is not ``taken``; raises :class:`EngineBusy` if there is none."""
    for sequence in range(capabilities.max_sequences):
        if sequence not in taken:
            return sequence
    raise EngineBusy(f"all {capabilities.max_sequences} sequences of the model are in use")


def check_length(sequence: int, held: int, length: int) -> None:
    """Raise :class:`EngineError` if a sequence of ``held`` tokens cannot be cut to ``length``."""
    if not 0 <= length <= held:
        raise EngineError(
            f"internal error: sequence {sequence} has {held} tokens and cannot be cut to {length}"
        )


def parse_recommended(found: Mapping[str, Any]) -> Options:
    """The sampling settings of a model's author by the names of options; none if one is not allowed."""
    try:
        return parse_options({name: value for name, value in found.items() if value is not None})
    except InvalidOptions:
        return Options()


def hash_of_end(path: Path) -> str:
    """A hash of the end of a file of weights, which differs between two fine-tunes of one size."""
    with path.open("rb") as file:
        file.seek(-min(HASHED_BYTES, path.stat().st_size), os.SEEK_END)
        return hashlib.sha256(file.read()).hexdigest()[:16]


CONTEXT = 264
"""tokens before the compared rows if the backend ``splits_contexts``: behind 256, kernels are others"""
ENOUGH_S = 1.0
"""a model whose check takes longer is not checked while it is loaded, but later, when idle"""
PIECE = 32
"""tokens of that context fed at once: a new request waits for no more than these"""
WIDTHS = 2, 3, 4, 5, 8, 16, 21
"""widths that are tried: kernels and costs change with them"""
PLACES = 0, 4, 8, 13
"""numbers of 1-wide forwards before a wide one: four rows of Q4_K are equal by chance in 3 of 8 cases"""
STEPS = PLACES[1] + max(WIDTHS)
BATCH = 0
"""stands for the forwards of two sequences, among widths"""


class Rounding(NamedTuple):
    """The fields of :class:`Capabilities` that are measured."""

    exact_width: int
    exact_batches: bool


PRESUMED = Rounding(exact_width=1, exact_batches=False)
"""used until a model has been checked to the end"""


def measure_rounding(backend: Backend, *, within_s: float = ENOUGH_S) -> Rounding | None:
    """Check a model, with all its sequences closed; None if ``within_s`` seconds were not enough."""
    steps, started = Probe(backend).steps(), time.perf_counter()
    while time.perf_counter() - started < within_s:
        try:
            next(steps)
        except StopIteration as end:
            found: Rounding = end.value
            return found
    steps.close()
    return None


def set_rounding(backend: Backend, rounding: Rounding) -> None:
    backend.capabilities = replace(backend.capabilities, **rounding._asdict())


Observe = Callable[[int, int, float], None]
"""learns the cost of a forward of so many tokens, after so many tokens, in so many seconds"""


class Probe:
    """The check of one model, a step per forward, on a sequence of its own. Closing :meth:`steps` frees that
    sequence; the rows of wide forwards are kept, and the next :meth:`steps` try what is missing. ``observe``
    learns from each forward, at the end."""

    def __init__(self, backend: Backend, observe: Observe = lambda width, context, seconds: None) -> None:
        self._backend, self._observe = backend, observe
        limits = backend.capabilities
        self._widths = [width for width in WIDTHS if width <= limits.max_batch]
        context = CONTEXT if limits.splits_contexts else sum(self._widths)
        self._n = max(1, min(context, limits.n_ctx - STEPS - 1))
        self._ends = [self._n]
        """of the pieces of the context: the last ones are as wide as the widths tried"""
        for width in reversed(self._widths):
            if width < self._ends[0]:
                self._ends.insert(0, self._ends[0] - width)
        self._ends = [*range(PIECE, self._ends[0], PIECE), *self._ends]
        # The text fed is this file: natural enough, and always there.
        text = Path(__file__).read_text(encoding="utf-8")
        self._tokens = backend.vocabulary.encode(text, special=False)[: self._n + STEPS + 1]
        self._tried: set[tuple[int, int]] = set()
        """widths, with the places where they were tried"""
        self._rows: set[tuple[int, int, int]] = set()
        """widths, with the places and the hashes of the rows that they gave"""
        self._unequal: set[int] = set()
        self._times: list[tuple[int, int, float]] = []

    def steps(self) -> Generator[None, None, Rounding]:
        """Check what is not checked yet. The reference rows are those of 1-wide forwards. A width is exact if
        every number of every row of such forwards equals the reference to the bit, at all of ``PLACES``, and
        all smaller widths are exact; batches are exact if the same holds for the rows of two sequences
        together. All widths are timed twice, once while the context is read. Raises :class:`EngineBusy` where
        no sequence is free."""
        sequence = self._backend.open()
        try:
            yield from self._try_batches(sequence)
            for place in range(STEPS + 1):
                if place in PLACES:
                    yield from self._try_widths(sequence, place)
                if place > PLACES[-1] + max((0, *self._equal)):
                    break
                yield from self._go_to(sequence, place)
                (reference,) = yield from self._forward(sequence, 1)
                self._unequal.update(
                    width for width, at, row in self._rows if at == place and row != reference
                )
        finally:
            self._backend.close(sequence)
        # Not earlier: the first forwards after a load are slow, and a request may come between.
        for each in self._times:
            self._observe(*each)
        return Rounding(max((1, *self._equal)), BATCH not in self._unequal)

    @property
    def _equal(self) -> list[int]:
        """The widths that are exact so far."""
        return list(takewhile(lambda width: width not in self._unequal, self._widths))

    def _go_to(self, sequence: int, place: int) -> Generator[None, None, None]:
        """Feed what is missing before ``place``, by the same forwards each time: cells round as those do."""
        for end in (*self._ends, *range(self._n + 1, self._n + place + 1)):
            if (length := self._backend.length(sequence)) < end:
                yield from self._forward(sequence, end - length)

    def _try_widths(self, sequence: int, place: int) -> Generator[None, None, None]:
        for width in self._equal:
            if place + width <= STEPS and (width, place) not in self._tried:
                for left in reversed(range(1 + (first := self._backend.capabilities.settling) + bool(first))):
                    yield from self._go_to(sequence, place)
                    self._backend.mark(sequence)
                    rows = yield from self._forward(sequence, width)
                    if self._backend.capabilities.replays and not left:
                        # A state may be computed otherwise than the rows beside it: the next row shows it.
                        rows += yield from self._forward(sequence, 1)
                    self._backend.truncate(sequence, self._n + place)
                self._rows.update((width, at, row) for at, row in enumerate(rows, place))
                self._tried.add((width, place))

    def _try_batches(self, sequence: int) -> Generator[None, None, None]:
        """Try forwards that another sequence shares, with as many tokens or fewer."""
        backend, steps = self._backend, self._tokens[self._n :]
        limits = backend.capabilities
        if not limits.batches or limits.max_sequences < 2 or (BATCH, 0) in self._tried:
            return
        yield from self._go_to(sequence, 0)
        backend.mark(sequence)
        other = backend.fork(sequence, self._n)
        try:
            for start, stop in ((0, 1), (1, 4)):
                mine = Span(sequence, steps[start:stop], stop - start)
                logits = backend.forward([mine, Span(other, steps[start : start + 1], 1)])
                places, rows = (*range(start, stop), start), _hashes(logits, stop - start + 1)
                self._rows.update((BATCH, at, row) for at, row in zip(places, rows, strict=True))
                yield
        finally:
            backend.close(other)
        self._tried.add((BATCH, 0))
        backend.truncate(sequence, self._n)

    def _forward(self, sequence: int, width: int) -> Generator[None, None, list[int]]:
        at, started = self._backend.length(sequence), time.perf_counter()
        tried = width == 1 or width in self._widths
        logits = self._backend.forward([Span(sequence, self._tokens[at : at + width], tried * width)])
        rows = []
        if tried:
            logits.argmax()  # waits for the device
            self._times.append((width, at, time.perf_counter() - started))
            rows = _hashes(logits, width)
        yield
        return rows


def _hashes(logits: Logits, rows: int) -> list[int]:
    return [hash(row.tobytes()) for row in logits.rows(0, rows)]
