"""The contract of a backend: four verbs over sequences of tokens, and the vocabulary.

Backends do not depend on speculation; of a backend, speculation uses nothing but this file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.errors import EngineBusy, EngineError, InvalidOptions
from localspec.protocol.options import Options, parse_options

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
    """True if the sequences of a forward are computed together, all spans as wide as the longest;
    False: one after the other"""
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

    def peaks(self) -> Sequence[float]:
        """The logit of every row's :meth:`argmax`; not finite where the row has a NaN or +inf."""

    def rows(self, start: int, stop: int) -> Rows:
        """Rows ``start:stop`` as float32, shape (stop - start, vocabulary size); a copy."""


class FimTokens(NamedTuple):
    """The special tokens of fill-in-the-middle; ``repo`` and ``sep`` are None in families without them."""

    prefix: int
    suffix: int
    middle: int
    repo: int | None = None
    sep: int | None = None


class Vocabulary(Protocol):
    """The tokens of a model."""

    @property
    def size(self) -> int: ...

    @property
    def bos(self) -> int | None:
        """The token that every text starts with; None if the model has none."""

    @property
    def bos_text(self) -> str:
        """The text of the token that chat templates call bos, also where no text starts with it by itself;
        empty without one."""

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
    def longest(self) -> int | None:
        """The most bytes of text that one token stands for; None where there is no such bound."""

    @property
    def chat_template(self) -> str | None:
        """The model's own Jinja template; None if its files have none."""

    def encode(self, text: str, *, special: bool) -> list[int]:
        """The tokens of ``text``, without BOS; ``special``: names such as ``<|…|>`` become special tokens.

        Several threads may call this at once.
        """

    def piece(self, token: int) -> bytes:
        """The bytes that ``token`` adds to the text; empty for special tokens."""

    def text_of(self, token: int) -> bytes:
        """The bytes that name ``token``, special tokens by their text, to compare two vocabularies."""


class Backend(Protocol):
    """A loaded model. Every method but :meth:`free` may raise :class:`localspec.errors.LocalspecError`.

    Sequences are small integers. One thread uses a backend at a time.
    """

    name: str
    model: str
    """the model's name, as the user writes it"""
    description: str
    """everything that its speed depends on: the backend's name and version, precision, size, threads"""
    capabilities: Capabilities
    defaults: Options
    """the sampling settings that the model's author recommends, where its files have some"""

    @property
    def vocabulary(self) -> Vocabulary: ...

    def open(self) -> int:
        """Open an empty sequence; raises :class:`EngineBusy` when none is left."""

    def forward(self, batch: Sequence[Span]) -> Logits:
        """Append every span's tokens and return the requested rows of logits.

        At most ``capabilities.max_batch`` tokens. On an error nothing has been appended.
        """

    def preempt(self, on: bool) -> None:
        """While on, let forwards raise :class:`Interrupted`, the one under way included; from any thread.
        A backend that cannot stop a forward ignores it."""

    def rollback(self, sequence: int) -> int | None:
        """The number of tokens of its next forward that `truncate` will be able to take back; None: any
        number. It may change from round to round."""

    def reach(self, sequence: int, length: int) -> int:
        """The largest number of first tokens, at most ``length``, that `truncate` can keep now."""

    def truncate(self, sequence: int, length: int) -> int:
        """Keep the first ``length`` tokens of ``sequence``, or fewer, as `reach` says; return how many.

        A recurrent state can only go back to where a copy was kept: before the last forward or after the
        last of its tokens, at a mark, and at the beginning.
        """

    def mark(self, sequence: int) -> None:
        """Let `truncate` come back to the present length, until it has cut the sequence below it. A new mark
        replaces the last one."""

    def fork(self, sequence: int, length: int) -> int:
        """Open a sequence with the first ``length`` tokens of ``sequence``, or fewer, as `reach` says."""

    def save(self, sequence: int) -> bytearray:
        """The state of ``sequence`` as bytes, for :meth:`restore` of a backend of the same description;
        only where ``capabilities.saves``."""

    def restore(self, state: bytearray) -> int:
        """Open a sequence that equals, to the bit, the one that was saved as ``state``.

        Raises :class:`EngineBusy` when none is left, :class:`EngineError` for bytes of any other format.
        """

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


def recommended(found: Mapping[str, Any]) -> Options:
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
