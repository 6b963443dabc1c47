"""The contract of a backend: four verbs over sequences of tokens, and the vocabulary.

A backend knows no speculation; speculation knows no more of a backend than this file.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.protocol.options import Options

ANY_WIDTH = 1 << 30
"""more tokens than any forward has"""

Rows = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a loaded model can do."""

    n_ctx: int
    """tokens one sequence may hold; each has cells of its own"""
    max_sequences: int
    max_batch: int
    """tokens one forward may append, over all its spans"""
    replays: bool = False
    """whether `truncate` may keep less than it was asked to, so that what is missing is fed again"""
    exact_batches: bool = True
    """whether a row is the same when other sequences share its forward"""
    batches: bool = True
    """whether several sequences share a forward, in which all spans are computed as wide as the longest;
    otherwise one is computed after the other"""
    obstacle: str = ""
    """why nothing can be taken back, and so nothing speculated; empty: something can"""
    margin_bound: float = 0.0
    """top-1 minus top-2 logit under which a wide forward may pick another token than a 1-wide one"""
    drift_bound: float = 0.0
    """the same for a 1-wide forward over cells that a round's wide forward wrote"""
    exact_width: int = ANY_WIDTH
    """rounds of up to so many tokens give the rows of 1-wide forwards, to the bit"""
    exact_piece: int = ANY_WIDTH
    """cells are the same in whatever pieces of up to so many tokens they were fed"""
    even_short: bool = True
    """cells are the same in whatever pieces of 8, 16, … 56 tokens they were fed"""
    even_long: bool = True
    """cells are the same in whatever pieces of 64, 128, 192 or 256 tokens they were fed"""
    saves: bool = False
    """whether a sequence can be saved as bytes"""


class Interrupted(Exception):
    """A forward gave up because somebody hurries; nothing was appended."""


class Span(NamedTuple):
    """Part of a forward: append ``tokens`` to ``sequence``, give logits for the last ``rows`` of them."""

    sequence: int
    tokens: Sequence[int]
    rows: int


class Logits(Protocol):
    """The rows one forward was asked for, in the order of its spans; valid until the next forward."""

    def argmax(self) -> Sequence[int]:
        """The most probable token of every row, without moving the rows."""

    def margins(self) -> Sequence[float]:
        """Top-1 minus top-2 logit of every row."""

    def peaks(self) -> Sequence[float]:
        """The logit of every row's :meth:`argmax`; no finite number where the row holds what is none."""

    def rows(self, start: int, stop: int) -> Rows:
        """Rows ``start:stop`` as float32, shape (stop - start, vocabulary size); a copy."""


class FimTokens(NamedTuple):
    """The special tokens of fill-in-the-middle; ``repo`` and ``sep`` where the family has them."""

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
        """The token every text starts with, if the model wants one."""

    @property
    def eos(self) -> int | None:
        """The token that chat templates call eos."""

    @property
    def end_tokens(self) -> frozenset[int]:
        """Tokens that end a generation (end of text, end of turn)."""

    @property
    def special_tokens(self) -> frozenset[int]:
        """Tokens that are no text: turn markers, end tokens, fill-in-the-middle tokens."""

    @property
    def fim(self) -> FimTokens | None: ...

    @property
    def longest(self) -> int | None:
        """Bytes of text that one token stands for at the most; None where there is no such bound."""

    @property
    def chat_template(self) -> str | None:
        """The model's own Jinja template."""

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Tokens of ``text``, without BOS; ``special`` reads ``<|…|>`` as the special tokens they name.

        Several threads may ask at once.
        """

    def piece(self, token: int) -> bytes:
        """The bytes that ``token`` adds to the text; empty for special tokens."""

    def text_of(self, token: int) -> bytes:
        """The bytes that name ``token``, special tokens by their text: what two vocabularies compare."""


class Backend(Protocol):
    """A loaded model. Every method but :meth:`free` may raise :class:`localspec.errors.LocalspecError`.

    Sequences are small integers. One thread uses a backend at a time.
    """

    name: str
    model: str
    """what the user calls this model"""
    description: str
    """what its speed depends on: the backend's name and version, precision, size, threads"""
    capabilities: Capabilities
    defaults: Options
    """the sampling settings that the model's author recommends, where its file says so"""

    @property
    def vocabulary(self) -> Vocabulary: ...

    def open(self) -> int:
        """A new, empty sequence; raises :class:`EngineBusy` when none is left."""

    def forward(self, batch: Sequence[Span]) -> Logits:
        """Append every span's tokens and return the logits rows asked for.

        At most ``capabilities.max_batch`` tokens. On an error nothing has been appended.
        """

    def hurry(self, on: bool) -> None:
        """From any thread: while it is on forwards may raise :class:`Interrupted`, the one under way, too.
        A backend that cannot give up goes on."""

    def check(self) -> None:
        """Raises :class:`ModelChanged` where the rows of earlier forwards are not to be trusted."""

    def rollback(self, sequence: int) -> int | None:
        """How many tokens of its next forward `truncate` will be able to take back; None: any number.
        It may change from round to round."""

    def reach(self, sequence: int, length: int) -> int:
        """The longest start of at most ``length`` tokens that `truncate` can keep now."""

    def truncate(self, sequence: int, length: int) -> int:
        """Keep the first ``length`` tokens of ``sequence``, or as many of them as `reach` says.

        Returns how many. A recurrent state can only go back to where it was kept: before the last
        forward or after the last of its tokens, at a mark, and at the beginning.
        """

    def mark(self, sequence: int, *, beside: bool = False) -> None:
        """Let `truncate` come back to the present length as long as it does not go behind it; the last
        mark counts. ``beside``: the mark that was made without it counts, too, where a backend can."""

    def fork(self, sequence: int, length: int) -> int:
        """A new sequence that shares the first ``length`` tokens of ``sequence``, or as many as `reach`
        says."""

    def save(self, sequence: int) -> bytearray:
        """All that ``sequence`` holds, for :meth:`restore` of a backend of the same description, where
        capabilities say that it ``saves``."""

    def restore(self, state: bytearray) -> int:
        """A new sequence that equals to the bit the one that was saved as ``state``.

        Raises :class:`EngineBusy` when none is left, :class:`EngineError` for bytes that are no state.
        """

    def close(self, sequence: int) -> None:
        """Forget ``sequence`` and free its cells."""

    def length(self, sequence: int) -> int:
        """Tokens that ``sequence`` holds."""

    def sequences(self) -> Collection[int]:
        """The sequences that are open."""

    def free(self) -> None:
        """Give back all memory; nothing may be called after this."""


def top_margin(row: NDArray[np.floating[Any]]) -> float:
    """Top-1 minus top-2 of one row, without sorting or copying it."""
    top = int(row.argmax())
    sides = [side.max() for side in (row[:top], row[top + 1 :]) if len(side)]
    return float(row[top] - max(sides)) if sides else float("inf")
