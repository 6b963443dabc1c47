"""The backend contract over one llama.cpp model and one context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as lib

from localspec.backends.base import (
    Capabilities,
    Interrupted,
    Span,
    check_length,
    first_free,
    hash_of_end,
    recommended,
)
from localspec.backends.llama_cpp import native
from localspec.backends.llama_cpp.batch import Batch
from localspec.backends.llama_cpp.devices import GPU, described, offloaded_bytes
from localspec.backends.llama_cpp.logits import LlamaLogits, Output
from localspec.backends.llama_cpp.reference import ReferenceMode
from localspec.backends.llama_cpp.sequences import RecurrentSequences, Sequences
from localspec.backends.llama_cpp.vocabulary import LlamaVocabulary
from localspec.backends.rounding import PRESUMED, measure_rounding, set_rounding
from localspec.errors import EngineBusy, EngineError, LocalspecError, ModelInvalid
from localspec.interrupt import delayed
from localspec.models.description import problem_of_file
from localspec.models.fit import free_memory, size_of_header, states_kept
from localspec.models.gguf import GgufHeader
from localspec.models.model import Model
from localspec.protocol.engine_config import EngineConfig

NO_CELL, ABORTED = 1, 2
NO_STATES = "llama.cpp keeps no earlier states of models of this architecture: drafts cannot be rolled back"
NO_ROOM = "there is too little memory for earlier states of this model: drafts cannot be rolled back"
RECOMMENDED = {"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}
"""from names in ``general.sampling.*`` of a GGUF file to names of options"""


class LlamaCppBackend:
    """See :class:`localspec.backends.base.Backend`.

    Raises :class:`ModelNotFound` and :class:`ModelInvalid` from a bounded check of the file's
    header before llama.cpp opens it, :class:`OutOfMemory` when the context does not fit.
    ``measured=False`` skips the probe of its rounding, which only a target needs;
    :mod:`localspec.backends.rounding` can do it later. ``drafts``: the model is a draft model, which goes
    back only to marks, so that no earlier states of a recurrent one are kept.
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
        if problem := problem_of_file(header, has_vocabulary=True):
            raise ModelInvalid(f"{path}: {problem.message}", problem.remedy)
        self.defaults = recommended(
            {ours: header.metadata.get(f"general.sampling.{key}") for key, ours in RECOMMENDED.items()}
        )
        self.model = model.own_name
        self._context: Any = None
        self._lib_model: Any = None
        try:
            # Neither an error nor a KeyboardInterrupt can pass through native code, which calls back for
            # progress and logs.
            with delayed() as interrupted:
                self._load_weights(path, config, progress or (lambda fraction: None), interrupted)
                self._start(path, config, header)
            if measured and not self.capabilities.obstacle:
                set_rounding(self, measure_rounding(self) or PRESUMED)
        except BaseException:
            self.free()
            raise

    def _load_weights(
        self,
        path: Path,
        config: EngineConfig,
        progress: Callable[[float], None],
        interrupted: Callable[[], bool],
    ) -> None:
        failed: list[BaseException] = []

        def report(fraction: float) -> bool:
            try:
                progress(fraction)
            except Exception as error:  # raised again below
                failed.append(error)
            return not failed and not interrupted()

        try:
            self._lib_model = native.load_model(str(path), config, report)
        except ModelInvalid:
            if interrupted():
                failed.append(KeyboardInterrupt())
            if failed:
                raise failed[0] from None
            raise

    def _start(self, path: Path, config: EngineConfig, header: GgufHeader) -> None:
        self.description = (
            f"llama_cpp {native.version()} {header.architecture} {header.quantisation}"
            f" {header.size} bytes {hash_of_end(path)},"
            f" {native.threads(config, self._lib_model)} threads,"
            f" {native.gpu_layers(config)} layers on the GPU, chunks of {config.chunk}"
            + f", {config.kv_bits}-bit cells"
            * bool(config.kv_bits)
        )
        size = size_of_header(header, config)
        n_ctx, n_sequences = native.sizes(self._lib_model, config, size)
        states = 0 if self._drafts else states_kept(size.state, n_sequences, free_memory())
        self._context = native.new_context(
            self._lib_model, config, n_ctx=n_ctx, n_sequences=n_sequences, states=states
        )
        self._abort = native.AbortFlag(self._context)
        layers = lib.llama_model_n_layer(self._lib_model)
        on = described(self._context, layers=layers, layers_on_gpu=native.gpu_layers(config))
        self.reference_mode = ReferenceMode(self._context, header.types, on_cpu=GPU not in on)
        self.description += ", rounds in reference mode" * self.reference_mode.available + f", on {on}"
        max_batch = lib.llama_n_batch(self._context)
        self._batch = Batch(max_batch)
        self.vocabulary = LlamaVocabulary(self._lib_model)
        self._output = Output(self._context, self.vocabulary.size)
        kept, obstacle = lib.llama_n_rs_seq(self._context), ""
        self._sequences = Sequences(self._context)
        if kept or native.is_recurrent(self._lib_model):
            self._sequences = RecurrentSequences(self._context, kept)
            self.description += f", {kept} earlier states"
            if not kept and not self._drafts:
                obstacle = NO_STATES if states else NO_ROOM
        offloaded = offloaded_bytes(self._context, header, native.gpu_layers(config))
        self.capabilities = Capabilities(
            n_ctx=n_ctx,
            trained_ctx=native.trained_context(self._lib_model),
            max_sequences=n_sequences,
            max_batch=max_batch,
            saves=True,
            fast_alone=self.reference_mode.fast_alone,
            replays=self._sequences.replays,
            obstacle=obstacle,
            splits_contexts=offloaded > 0 or not self.reference_mode.available,
            offloaded_bytes=offloaded,
        )

    def open(self) -> int:
        sequence = first_free(self._sequences.lengths, self.capabilities)
        self._sequences.open(sequence)
        return sequence

    def forward(self, batch: Sequence[Span]) -> LlamaLogits:
        width = self._common_width(batch) if len(batch) > 1 else 0
        longest, exact = 0, False
        for span in batch:
            longest, exact = max(longest, len(span.tokens)), exact or span.exact
        rows = self._batch.fill(batch, self._sequences.lengths, width)
        self._sequences.settle(batch)
        self.reference_mode.for_widths(longest, self._batch.length, exact=exact)
        code = lib.llama_decode(self._context, self._batch.native)
        if code:
            for span in batch:
                self._sequences.undo(span.sequence)
            if code == ABORTED:
                raise Interrupted
            if code == NO_CELL:
                raise EngineBusy(f"the model's KV cache has no room for {self._batch.length} more tokens")
            reason = native.last_error("no reason given")
            raise EngineError(f"llama.cpp failed to compute a forward: {reason} (llama_decode: {code})")
        for sequence, tokens, *_ in batch:
            self._sequences.advance(sequence, len(tokens), max(width, len(tokens)))
        return self._output.logits(rows)

    def _common_width(self, spans: Sequence[Span]) -> int:
        """The width to which shorter spans are padded; 0: no padding, because there is no room for it.

        llama.cpp advances streams by equal steps and computes the rest in forwards of its own:
        lengths of 5, 3, 1 and 4 took 184 ms in one batch, padded to 5 each 98 ms.
        """
        width = max(len(span.tokens) for span in spans)
        room = all(self.length(span.sequence) + width <= self.capabilities.n_ctx for span in spans)
        room &= width * len(spans) <= self.capabilities.max_batch
        return width if room and self._sequences.may_fill(spans, width) else 0

    def preempt(self, on: bool) -> None:
        # A recurrent state cannot be restored after half a forward.
        self._abort.set(on and not self._sequences.replays)

    def rollback(self, sequence: int) -> int | None:
        return 0 if self.capabilities.obstacle else self._sequences.rollback(sequence)

    def reach(self, sequence: int, length: int) -> int:
        return length if length == self.length(sequence) else self._sequences.reach(sequence, length)

    def truncate(self, sequence: int, length: int) -> int:
        check_length(sequence, self.length(sequence), length)
        return self._sequences.truncate(sequence, length)

    def mark(self, sequence: int) -> None:
        self._sequences.mark(sequence)

    def fork(self, sequence: int, length: int) -> int:
        copy = self.open()
        try:
            self._sequences.copy(sequence, copy, length)
        except LocalspecError:
            self.close(copy)
            raise
        return copy

    def save(self, sequence: int) -> bytearray:
        return self._sequences.save(sequence)

    def restore(self, state: bytearray) -> int:
        copy = self.open()
        try:
            self._sequences.restore(copy, state)
        except LocalspecError:
            self.close(copy)
            raise
        return copy

    def close(self, sequence: int) -> None:
        self._sequences.close(sequence)

    def length(self, sequence: int) -> int:
        return self._sequences.lengths[sequence]

    def free(self) -> None:
        if self._context:
            self._batch.free()
            lib.llama_free(self._context)
            self._context = None
        if self._lib_model:
            lib.llama_model_free(self._lib_model)
            self._lib_model = None
