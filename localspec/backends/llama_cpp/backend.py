"""The backend contract over one llama.cpp model and one context."""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np

from localspec.backends.base import Capabilities, Interrupted, Rows, Span, top_margin
from localspec.backends.llama_cpp import native
from localspec.backends.llama_cpp.devices import described
from localspec.backends.llama_cpp.reference import ReferenceMode
from localspec.backends.llama_cpp.sequences import RecurrentSequences, Sequences
from localspec.backends.llama_cpp.vocabulary import LlamaVocabulary
from localspec.backends.rounding import PRESUMED, measure_rounding, set_rounding
from localspec.config import EngineConfig
from localspec.errors import EngineBusy, EngineError, InvalidOptions, ModelInvalid
from localspec.models.description import weight_files
from localspec.models.fit import free_memory, size_of_header, states_kept
from localspec.models.gguf import GgufHeader
from localspec.models.kind import kind_of_file
from localspec.models.model import Model
from localspec.models.opened import OpenedFiles
from localspec.protocol.options import Options, parse_options

NO_CELL, ABORTED = 1, 2
TAIL_BYTES = 1 << 20
NO_STATES = "llama.cpp keeps no earlier states of models of this architecture: no token can be taken back"
NO_ROOM = "there is no memory for earlier states of this model: no token can be taken back"
RECOMMENDED = {"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}
"""``general.sampling.*`` of a GGUF file, and what we call it"""


def _recommended(metadata: dict[str, Any]) -> Options:
    """The author's sampling settings; what makes no sense is passed over."""
    found = {ours: metadata.get(f"general.sampling.{theirs}") for theirs, ours in RECOMMENDED.items()}
    try:
        return parse_options({name: value for name, value in found.items() if value is not None})
    except InvalidOptions:
        return Options()


def _tail(path: Path) -> str:
    """What tells two fine-tunes of one size apart: a hash of the last weights."""
    with path.open("rb") as file:
        file.seek(-min(TAIL_BYTES, path.stat().st_size), os.SEEK_END)
        return hashlib.sha256(file.read()).hexdigest()[:16]


class LlamaLogits:
    """A view of llama.cpp's output buffer: the ``n`` rows that were asked for, in their order."""

    def __init__(self, context: Any, n: int, size: int) -> None:
        buffer: Any = b""
        if n:
            # np.ctypeslib.as_array would do the same in fifty times as long.
            address = ctypes.addressof(lib.llama_get_logits(context).contents)
            buffer = (ctypes.c_float * (n * size)).from_address(address)
        self._rows: Rows = np.frombuffer(buffer, dtype=np.float32).reshape(n, size)

    @cached_property
    def _best(self) -> list[int]:
        found: list[int] = self._rows.argmax(axis=-1).tolist()
        return found

    def argmax(self) -> list[int]:
        return self._best

    def peaks(self) -> list[float]:
        return [self._rows.item(i, token) for i, token in enumerate(self._best)]

    def margins(self) -> list[float]:
        return [top_margin(row) for row in self._rows]

    def rows(self, start: int, stop: int) -> Rows:
        return self._rows[start:stop].copy()


class LlamaCppBackend:
    """See :class:`localspec.backends.base.Backend`.

    Raises :class:`ModelNotFound` and :class:`ModelInvalid` from a bounded check of the file's
    header before llama.cpp opens it, :class:`OutOfMemory` when the context does not fit. llama.cpp maps
    the file: once it is overwritten forwards raise :class:`ModelChanged`.
    ``measured=False`` spares the probe of its rounding, which only a target's rows need;
    :mod:`localspec.backends.rounding` can do it later. ``drafts``: the model drafts for another one, so
    that it goes back to marks alone, and no earlier states of a recurrent model are kept.
    """

    name = "llama_cpp"

    def __init__(
        self,
        model: Model,
        config: EngineConfig | None = None,
        *,
        progress: Callable[[float], None] | None = None,
        measured: bool = True,
        drafts: bool = False,
    ) -> None:
        config = config or EngineConfig()
        self._drafts = drafts
        path, header = model.path, model.header
        if not isinstance(header, GgufHeader):
            raise ModelInvalid(f"{path} is a directory, not a GGUF file")
        if other := kind_of_file(header, has_vocabulary=True):
            raise ModelInvalid(f"{path} does not answer: {other.what}", other.remedy)
        self.defaults = _recommended(header.metadata)
        self.model = model.own_name
        self._files = OpenedFiles(weight_files(path))
        self._context: Any = None
        self._lib_model: Any = None
        try:
            self._load(path, config, header, progress)
            if measured and not self.capabilities.obstacle:
                set_rounding(self, measure_rounding(self) or PRESUMED)
        except BaseException:
            self.free()
            raise

    def _load(
        self, path: Path, config: EngineConfig, header: GgufHeader, progress: Callable[[float], None] | None
    ) -> None:
        self._lib_model = native.load_model(str(path), config, progress)
        self.description = (
            f"llama_cpp {native.version()} {header.architecture} {header.quantisation}"
            f" {header.file_size} bytes {_tail(path)}, {native.threads(config, self._lib_model)} threads,"
            f" {native.gpu_layers(config)} layers on the GPU, chunks of {config.prefill_chunk}"
            + f", {config.kv_bits}-bit cells"
            * bool(config.kv_bits)
        )
        self._start(config, header)
        self._files.check()

    def _start(self, config: EngineConfig, header: GgufHeader) -> None:
        size = size_of_header(header, config)
        n_ctx, n_sequences = native.sizes(self._lib_model, config, size)
        states = 0 if self._drafts else states_kept(size.state, n_sequences, free_memory())
        self._context = native.new_context(
            self._lib_model, config, n_ctx=n_ctx, n_sequences=n_sequences, states=states
        )
        self._hurry = native.AbortFlag(self._context)
        self.reference_mode = ReferenceMode(self._context, header.types)
        self.description += ", rounds in reference mode" * self.reference_mode.available
        layers = lib.llama_model_n_layer(self._lib_model)
        on = described(self._context, layers=layers, layers_on_gpu=native.gpu_layers(config))
        self.description += f", on {on}"
        max_batch = lib.llama_n_batch(self._context)
        self._batch = lib.llama_batch_init(max_batch, 0, 1)
        self.vocabulary = LlamaVocabulary(self._lib_model)
        kept, obstacle = lib.llama_n_rs_seq(self._context), ""
        self._sequences = Sequences(self._context)
        if kept or native.is_recurrent(self._lib_model):
            self._sequences = RecurrentSequences(self._context, kept)
            self.description += f", {kept} earlier states"
            if not kept and not self._drafts:
                obstacle = NO_STATES if states else NO_ROOM
        self.capabilities = Capabilities(
            n_ctx=n_ctx,
            max_sequences=n_sequences,
            max_batch=max_batch,
            saves=True,
            replays=self._sequences.replays,
            obstacle=obstacle,
        )

    def open(self) -> int:
        self._sequences.mend()
        for sequence in range(self.capabilities.max_sequences):
            if sequence not in self._sequences.lengths:
                self._sequences.open(sequence)
                return sequence
        raise EngineBusy("all sequences of the model are in use")

    def forward(self, batch: Sequence[Span]) -> LlamaLogits:
        width = self._common_width(batch)
        rows = self._fill(batch, width)
        self._sequences.settle(batch)
        self._sequences.begin(*(span.sequence for span in batch))
        self._files.check_sometimes()  # reading a mapped file beyond its new end kills the process
        self.reference_mode.for_widths(max(len(span.tokens) for span in batch), self._batch.n_tokens)
        code = lib.llama_decode(self._context, self._batch)
        if code:
            self._sequences.mend()
            if code == ABORTED:
                raise Interrupted
            if code == NO_CELL:
                raise EngineBusy("the model's cache is full")
            raise EngineError(f"llama_decode returned {code}: {native.last_complaint('no reason given')}")
        for sequence, tokens, _ in batch:
            self._sequences.advance(sequence, len(tokens), max(width, len(tokens)))
        self._sequences.finish()
        return LlamaLogits(self._context, rows, self.vocabulary.size)

    def _common_width(self, spans: Sequence[Span]) -> int:
        """To what width shorter spans are filled up; 0: not at all, where there is no room.

        llama.cpp advances streams by equal steps and computes what is left over in forwards of its
        own: lengths of 5, 3, 1 and 4 took 184 ms in one batch, filled up to 5 each 98 ms.
        """
        width = max(len(span.tokens) for span in spans)
        room = all(self.length(span.sequence) + width <= self.capabilities.n_ctx for span in spans)
        room &= width * len(spans) <= self.capabilities.max_batch
        return width if room and self._sequences.may_fill(spans, width) else 0

    def _fill(self, spans: Sequence[Span], width: int) -> int:
        """Lay the spans out in llama.cpp's batch; returns how many rows of logits were asked for."""
        batch, at = self._batch, 0
        for sequence, tokens, rows in spans:
            n = max(len(tokens), width)
            if at + n > self.capabilities.max_batch:
                raise EngineError(f"a forward of more than {self.capabilities.max_batch} tokens")
            position, first_row = self.length(sequence), len(tokens) - rows
            for i in range(n):
                wanted = first_row <= i < len(tokens)
                batch.token[at] = tokens[min(i, len(tokens) - 1)]
                batch.pos[at] = position + i
                batch.n_seq_id[at] = 1
                batch.seq_id[at][0] = sequence
                batch.logits[at] = wanted
                at += 1
        batch.n_tokens = at
        return sum(span.rows for span in spans)

    def hurry(self, on: bool) -> None:
        # Half a forward cannot be taken out of a recurrent state.
        self._hurry.set(on and not self._sequences.replays)

    def check(self) -> None:
        self._files.check()

    def rollback(self, sequence: int) -> int | None:
        return 0 if self.capabilities.obstacle else self._sequences.rollback(sequence)

    def reach(self, sequence: int, length: int) -> int:
        return length if length == self.length(sequence) else self._sequences.reach(sequence, length)

    def truncate(self, sequence: int, length: int) -> int:
        if not 0 <= length <= self.length(sequence):
            raise EngineError(f"sequence {sequence} holds {self.length(sequence)} tokens, not {length}")
        return self._sequences.truncate(sequence, length)

    def mark(self, sequence: int, *, beside: bool = False) -> None:
        self._sequences.mend()
        self._sequences.mark(sequence, beside=beside)

    def fork(self, sequence: int, length: int) -> int:
        copy = self.open()
        try:
            self._sequences.copy(sequence, copy, length)
        except BaseException:
            self.close(copy)
            raise
        return copy

    def save(self, sequence: int) -> bytearray:
        self._sequences.mend()
        return self._sequences.save(sequence)

    def restore(self, state: bytearray) -> int:
        copy = self.open()
        try:
            self._sequences.restore(copy, state)
        except BaseException:
            self.close(copy)
            raise
        return copy

    def close(self, sequence: int) -> None:
        self._sequences.mend()
        self._sequences.close(sequence)

    def length(self, sequence: int) -> int:
        self._sequences.mend()
        return self._sequences.lengths[sequence]

    def sequences(self) -> Collection[int]:
        return list(self._sequences.lengths)

    def free(self) -> None:
        if self._context:
            lib.llama_batch_free(self._batch)
            lib.llama_free(self._context)
            self._context = None
        if self._lib_model:
            lib.llama_model_free(self._lib_model)
            self._lib_model = None
        self._files.close()
