"""The backend contract over one llama.cpp model and one context, with the rollback of its sequences.

A forward takes a batch: tokens with their positions and sequences. Its logits are in the context's output
buffer until the next one. Rounds are computed in ggml's reference mode, where rows do not depend on the
number of rows beside them.

Attention cells can be cut off anywhere. A recurrent state cannot: only the one after the last token exists.
llama.cpp keeps the states after each of the last ``K + 1`` tokens of a forward (``n_rs_seq`` of the context)
for some architectures (src/llama-arch.cpp, ``llm_arch_supports_rs_rollback``), and copies whole states.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
from msgspec.structs import replace

from localspec.backends.base import (
    Capabilities,
    Interrupted,
    Rows,
    Span,
    check_length,
    first_free,
    hash_of_end,
    parse_recommended,
    top_margin,
)
from localspec.backends.llama_cpp import native, rpc
from localspec.backends.llama_cpp.native import (
    CPU,
    GPU,
    REPLAYING,
    SETTLING,
    backends_of,
    describe_devices,
    find_function,
    offloaded_bytes,
)
from localspec.backends.llama_cpp.vocabulary import LlamaVocabulary
from localspec.errors import EngineBusy, EngineError, LocalspecError, ModelInvalid
from localspec.models.fit import CellBytes, choose_sizes, rest_of, share_of
from localspec.models.gguf import GgufHeader
from localspec.models.machine import free_memory
from localspec.models.model import Model, problem_of_file
from localspec.models.needs import states_kept
from localspec.process import delay_interrupts
from localspec.protocol.requests import EngineConfig

LENGTH = struct.Struct("<I")
"""header of a saved sequence, its length in tokens, before llama.cpp's own format"""
WHOLE, RECURRENT = lib.LLAMA_STATE_SEQ_FLAGS_NONE, lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
"""parts of a sequence to save: all of it, or its recurrent states alone, without cells of attention"""


class Sequences:
    """Sequences that consist of cells alone: `truncate` keeps any length. Methods with names of
    :class:`Backend`'s do the same for it."""

    replays = False

    def __init__(self, context: Any) -> None:
        self._context = context
        self._memory = lib.llama_get_memory(context)
        self.lengths: dict[int, int] = {}

    def open(self, sequence: int) -> None:
        self._cut(sequence, 0)
        self.lengths[sequence] = 0

    def close(self, sequence: int) -> None:
        """Free the cells of a sequence."""
        self._cut(sequence, 0)
        del self.lengths[sequence]

    def may_fill(self, spans: Sequence[Span], width: int) -> bool:
        """True if all spans may be filled up to ``width`` tokens."""
        return True

    def settle(self, spans: Sequence[Span]) -> None:
        """Make the sequences ready for a forward of these spans."""

    def advance(self, sequence: int, n: int, written: int) -> None:
        """Record a forward of ``written`` cells, of which the first ``n`` are tokens, the rest padding."""
        self.lengths[sequence] += n
        if n < written:
            self._cut(sequence, self.lengths[sequence])

    def undo(self, sequence: int) -> None:
        """Drop the cells that a failed forward, or padding, has written."""
        self._cut(sequence, self.lengths.get(sequence, 0))

    def rollback(self, sequence: int) -> int | None:
        return None

    def reach(self, sequence: int, length: int) -> int:
        return length

    def truncate(self, sequence: int, length: int) -> int:
        """``length`` is at most the present one."""
        if length < self.lengths[sequence]:
            self._cut(sequence, length)
            self.lengths[sequence] = length
        return length

    def mark(self, sequence: int) -> None:
        """Nothing is needed to come back."""

    def copy(self, sequence: int, copy: int, length: int) -> None:
        """Fill ``copy``, which is empty, with the first ``length`` tokens of ``sequence``, or fewer."""
        # Between streams only a whole sequence can be copied; the excess is cut off again.
        lib.llama_memory_seq_cp(self._memory, sequence, copy, 0, -1)
        self.lengths[copy] = self.lengths[sequence]
        self.truncate(copy, length)

    def save(self, sequence: int) -> bytearray:
        state = bytearray(LENGTH.size) + self._state(sequence, WHOLE)
        LENGTH.pack_into(state, 0, self.lengths[sequence])
        return state

    def restore(self, sequence: int, state: bytearray) -> None:
        """Fill ``sequence``, which is empty, from a saved ``state``; raises :class:`EngineError`."""
        if len(state) <= LENGTH.size or not self._set_state(sequence, state, WHOLE, LENGTH.size):
            raise EngineError("the saved sequence cannot be restored: it is damaged, or of another model")
        (self.lengths[sequence],) = LENGTH.unpack_from(state)

    def _cut(self, sequence: int, length: int) -> None:
        if not lib.llama_memory_seq_rm(self._memory, sequence, length, -1):
            raise EngineError(f"llama.cpp could not cut the KV cache of a sequence to {length} tokens")

    def _state(self, sequence: int, part: int) -> bytearray:
        state = bytearray(lib.llama_state_seq_get_size_ext(self._context, sequence, part))
        size = len(state)
        if lib.llama_state_seq_get_data_ext(self._context, _address(state), size, sequence, part) != size:
            raise EngineError("llama.cpp could not save the KV cache of a sequence")
        return state

    def _set_state(self, sequence: int, state: bytearray, part: int, start: int = 0) -> bool:
        size = len(state) - start
        taken = lib.llama_state_seq_set_data_ext(self._context, _address(state, start), size, sequence, part)
        return bool(taken == size)


@dataclass(slots=True)
class _Mark:
    length: int
    state: bytearray


class RecurrentSequences(Sequences):
    """Sequences with a recurrent state, of which llama.cpp keeps ``kept`` earlier ones. After a forward of
    ``w`` tokens a sequence can go back by ``min(kept, w - 1)``; llama.cpp reports ``kept`` however short the
    forward was, which is wrong. It can go back only once before the next forward, so a cut is only noted, and
    made when something depends on it. Further back are only the marks, which are copies of the state, and the
    beginning."""

    replays = True

    def __init__(self, context: Any, kept: int) -> None:
        super().__init__(context)
        self._kept = kept
        self._written: dict[int, int] = {}
        """by sequence, the tokens that llama.cpp holds: at least its length"""
        self._back: dict[int, int] = {}
        """by sequence, the number of these that can be taken back"""
        self._marks: dict[int, _Mark] = {}
        """by sequence, where it has one"""

    def open(self, sequence: int) -> None:
        self._set_length(sequence, 0)

    def close(self, sequence: int) -> None:
        super().close(sequence)
        for facts in (self._written, self._back, self._marks):
            facts.pop(sequence, None)

    def may_fill(self, spans: Sequence[Span], width: int) -> bool:
        # Padding after a span, and its drafts before it, must be rolled back.
        extra = (width - len(span.tokens) + max(span.rows - 1, 0) for span in spans)
        return max(extra) <= min(self._kept, width - 1)

    def settle(self, spans: Sequence[Span]) -> None:
        for span in spans:
            self._settle(span.sequence)

    def advance(self, sequence: int, n: int, written: int) -> None:
        self._written[sequence] = self.lengths[sequence] + written
        self._back[sequence] = min(self._kept, written - 1)
        self.lengths[sequence] += n

    def undo(self, sequence: int) -> None:
        # The state may include any part of the failed forward: only a mark is exact, no rollback is.
        self._go_to(sequence, self._mark_at(sequence, self.lengths[sequence]))

    def rollback(self, sequence: int) -> int | None:
        return self._kept

    def reach(self, sequence: int, length: int) -> int:
        if length >= self._least(sequence):
            return length
        mark = self._mark_at(sequence, length)
        return 0 if mark is None else mark.length

    def truncate(self, sequence: int, length: int) -> int:
        kept = self.reach(sequence, length)
        mark = self._mark_at(sequence, kept)
        if mark is None:
            self._marks.pop(sequence, None)
        if kept < self._least(sequence):
            self._go_to(sequence, mark)
        self.lengths[sequence] = min(kept, self.lengths[sequence])
        return self.lengths[sequence]

    def mark(self, sequence: int) -> None:
        self._marks.pop(sequence, None)
        self._settle(sequence)
        if self.lengths[sequence]:
            self._marks[sequence] = _Mark(self.lengths[sequence], self._state(sequence, RECURRENT))

    def copy(self, sequence: int, copy: int, length: int) -> None:
        # llama.cpp's own copy takes the state before a cut, and shares data that the next cut changes.
        usable = self._mark_at(sequence, length)
        if length != self.lengths[sequence] and usable is None:
            return
        self._settle(sequence)
        if not self._set_state(copy, self._state(sequence, WHOLE), WHOLE):
            raise EngineError("llama.cpp could not copy the KV cache of a sequence")
        self._set_length(copy, self.lengths[sequence])
        if usable is not None:
            self._marks[copy] = usable
        if length != self.lengths[sequence]:
            self._go_to(copy, usable)

    def save(self, sequence: int) -> bytearray:
        self._settle(sequence)
        return super().save(sequence)

    def restore(self, sequence: int, state: bytearray) -> None:
        super().restore(sequence, state)
        self._set_length(sequence, self.lengths[sequence])

    def _mark_at(self, sequence: int, length: int) -> _Mark | None:
        mark = self._marks.get(sequence)
        return mark if mark is not None and mark.length <= length else None

    def _least(self, sequence: int) -> int:
        """The least length that can be reached without a copy of a state."""
        return min(self.lengths[sequence], self._written[sequence] - self._back[sequence])

    def _set_length(self, sequence: int, length: int) -> None:
        self._back[sequence] = 0
        self._written[sequence] = self.lengths[sequence] = length

    def _settle(self, sequence: int) -> None:
        """Make the noted cut, if any; no further rollback is possible until the next forward."""
        length = self.lengths[sequence]
        if length < self._written[sequence]:
            self._cut(sequence, length)
            self._set_length(sequence, length)

    def _go_to(self, sequence: int, mark: _Mark | None) -> None:
        """Go back to the mark, or to the beginning if it is None or cannot be restored."""
        if mark is not None and self._set_state(sequence, mark.state, RECURRENT):
            self._cut(sequence, mark.length)
            self._set_length(sequence, mark.length)
            return
        self._marks.pop(sequence, None)
        self._cut(sequence, 0)
        self._set_length(sequence, 0)


def _address(state: bytearray, start: int = 0) -> Any:
    return (ctypes.c_uint8 * (len(state) - start)).from_buffer(state, start)


class Batch:
    """A batch of at most ``size`` tokens, of one sequence each; ``native`` is llama.cpp's own. Its arrays are
    held here: ctypes makes a new object each time one is read from the structure."""

    def __init__(self, size: int) -> None:
        self.size, self.length = size, 0
        self.native = lib.llama_batch_init(size, 0, 1)
        self._token, self._position = self.native.token, self.native.pos
        self._sequence, self._wanted = self.native.seq_id, self.native.logits
        for i in range(size):
            self.native.n_seq_id[i] = 1

    def fill(self, spans: Sequence[Span], lengths: Mapping[int, int], width: int) -> int:
        """Replace the content by the spans, each behind the cells of its sequence (``lengths``) and padded to
        ``width`` tokens; return the number of rows of logits requested."""
        token, position, sequence, wanted = self._token, self._position, self._sequence, self._wanted
        at = rows = 0
        for span in spans:
            n = max(len(span.tokens), width)
            if at + n > self.size:
                raise EngineError(f"internal error: a forward of more than {self.size} tokens")
            start, last = lengths.get(span.sequence, 0), len(span.tokens) - 1
            first_row = len(span.tokens) - span.rows
            for i in range(n):
                token[at] = span.tokens[min(i, last)]
                position[at] = start + i
                sequence[at][0] = span.sequence
                wanted[at] = first_row <= i <= last
                at += 1
            rows += span.rows
        self.length = self.native.n_tokens = at
        return rows

    def free(self) -> None:
        lib.llama_batch_free(self.native)


class LlamaLogits:
    """A view of the rows that were requested, in their order; see :class:`localspec.backends.base.Logits`."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def argmax(self) -> list[int]:
        best: list[int] = self._rows.argmax(axis=-1).tolist()
        return best

    def choice(self, i: int) -> int | None:
        token = int(self._rows[i].argmax())
        return token if math.isfinite(self._rows.item(i, token)) else None

    def margins(self) -> list[float]:
        return [top_margin(row) for row in self._rows]

    def rows(self, start: int, stop: int) -> Rows:
        return self._rows[start:stop].copy()

    def row(self, i: int) -> Rows:
        return np.asarray(self._rows[i])  # no copy: fresh memory takes longer than all reading


TILE = 64
"""from this many rows on, attention is computed in tiles"""

ALIKE = {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"}
"""types of weights whose products are the same with and without reference mode"""
TILED_WEIGHTS = 16
"""from this many rows on, products with all others are faster in tiles"""

Switch = Callable[[bool], None]


class ReferenceMode:
    """ggml's reference mode for one context, whose model has weights of the types ``weights``; off in the
    beginning, and not available where no layer is computed ``on_cpu``. Rows in it do not depend on the number
    of rows beside them.

    On a CPU, flash attention sums a lone row over 512 cells and more in parts, one per thread, and a row
    among others in one go (ggml-cpu/ops.cpp, ``ggml_compute_forward_flash_attn_ext_f16``). That differs in
    the last bit, which quantised activations amplify to up to 0.2 logits. In reference mode every row is
    summed in one go, and forwards of 1, 2, 5 and 16 tokens give the same bits, however long the context. That
    is faster or slower: on 2 cores a lone row behind 1,900 tokens takes 18.2 ms instead of 20.2 (0.5 billion
    parameters at Q8_0), behind 1,500 42.8 instead of 39.7 (1.5 billion at Q4_K_M), behind 3,500 34.3 instead
    of 32.5 (0.5 billion). So where more rows of a model's weights are not equal anyway, a lone row is in it
    only if it must be. Long pieces of a prompt are much faster without it: they are computed in tiles. So are
    products with K-quants and similar types from eight rows on, which pays from 16 on: with 1.5 billion
    parameters at Q4_K_M, 8 rows cost 5.0 forwards of one row in reference mode and 6.5 without, 12 rows 7.3
    and 7.9, 16 rows 7.6 and 7.5, 32 rows 14.9 and 12.8. In it, up to three rows of Q4_K, and up to seven of
    Q5_K and Q6_K, are equal.

    llama.cpp's C interface gives no access to ggml's backends, but its shared library exports the C++ method
    that does. Where it is not exported, the mode stays off. In either case strict mode relies only on what
    :mod:`localspec.backends.base` measures.
    """

    def __init__(self, context: Any, weights: Iterable[str], *, on_cpu: bool = True) -> None:
        self._switches = _switches(context) if on_cpu else []
        self._most = math.inf if ALIKE.issuperset(weights) else TILED_WEIGHTS - 1
        self._on = False
        self.available = bool(self._switches)
        self.fast_alone = self.available and self._most < math.inf
        """True if lone rows are summed in parts unless they must be exact"""

    def for_widths(self, longest: int, total: int, *, exact: bool = True) -> None:
        """Switch the mode for a forward of at most ``longest`` tokens a sequence and ``total`` in all. It
        holds for the whole forward: beside a long piece of a prompt, short spans are computed without it."""
        on = longest < TILE and total <= self._most and (exact or longest > 1 or not self.fast_alone)
        if on != self._on:
            for switch in self._switches:
                switch(on)
            self._on = on


def _switches(context: Any) -> list[Switch]:
    """Return one switch per CPU backend of the context; none where the library exports no access to them."""
    pointer = ctypes.c_void_p
    try:
        backends = backends_of(context)
        registry_of = find_function("ggml_backend_dev_backend_reg", pointer, pointer)
        find = find_function("ggml_backend_reg_get_proc_address", pointer, pointer, ctypes.c_char_p)
    except AttributeError:
        return []
    set_use_ref = ctypes.CFUNCTYPE(None, pointer, ctypes.c_bool)
    found: list[Switch] = []
    for each in backends:
        if each.kind == CPU:
            address = find(registry_of(each.device), b"ggml_backend_cpu_set_use_ref")
            if address:
                found.append(partial(set_use_ref(address), each.backend))
    return found


NO_CELL, ABORTED = 1, 2
NO_STATES = "llama.cpp keeps no earlier states of models of this architecture: drafts cannot be rolled back"
NO_ROOM = "there is too little memory for earlier states of this model: drafts cannot be rolled back"
RECOMMENDED = {"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}
"""from names in ``general.sampling.*`` of a GGUF file to names of options"""


class LlamaCppBackend:
    """See :class:`localspec.backends.base.Backend`. Raises :class:`ModelNotFound` and :class:`ModelInvalid`
    from a bounded check of the file's header before llama.cpp opens it, :class:`OutOfMemory` when the context
    does not fit. ``drafts``: the model is a draft model, which goes back only to marks, so that no earlier
    states of a recurrent one are kept. ``servers``: the bytes that are free at RPC servers, by their
    addresses."""

    name = "llama_cpp"

    def __init__(
        self,
        model: Model,
        config: EngineConfig | None = None,
        *,
        progress: Callable[[float], None] | None = None,
        drafts: bool = False,
        servers: Mapping[str, int] = {},
    ) -> None:
        config = config or EngineConfig()
        self._drafts = drafts
        path, header = model.path, model.header
        if not isinstance(header, GgufHeader):
            raise ModelInvalid(f"{path} is a directory, not a GGUF file")
        if problem := problem_of_file(header, has_vocabulary=True):
            raise ModelInvalid(f"{path}: {problem.message}", problem.remedy)
        self.defaults = parse_recommended(
            {ours: header.metadata.get(f"general.sampling.{key}") for key, ours in RECOMMENDED.items()}
        )
        self.model = model.own_name
        self._context: Any = None
        self._lib_model: Any = None
        try:
            # Neither an error nor a KeyboardInterrupt can pass through native code, which calls back for
            # progress and logs.
            with delay_interrupts() as interrupted:
                devices = rpc.devices(servers) if servers else {}
                self._load_weights(path, config, devices, progress or (lambda fraction: None), interrupted)
                self._start(model, config, header)
            if servers:
                rpc.keep_alive(servers)
        except BaseException:
            self.free()
            raise

    def _load_weights(
        self,
        path: Path,
        config: EngineConfig,
        devices: Mapping[int, int],
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
            self._lib_model = native.load_model(str(path), config, report, devices)
        except ModelInvalid:
            if interrupted():
                failed.append(KeyboardInterrupt())
            if failed:
                raise failed[0] from None
            raise

    def _start(self, model: Model, config: EngineConfig, header: GgufHeader) -> None:
        self.description = (
            f"llama_cpp {native.version()} {header.architecture} {header.quantisation}"
            f" {header.size} bytes {hash_of_end(model.path)},"
            f" {native.threads(config, self._lib_model)} threads,"
            f" {native.gpu_layers(config)} layers on the GPU, chunks of {config.chunk}"
            + f", experts of {config.cpu_experts} layers on the processor" * (config.cpu_experts > 0)
            + f", {config.kv_bits}-bit cells" * bool(config.kv_bits)
        )
        placed = replace(config, gpu_layers=native.gpu_layers(config))
        size = share_of(model, config) if config.rpc else rest_of(model, placed)
        taken = CellBytes(int(size.cell), size.state)
        trained = lib.llama_model_n_ctx_train(self._lib_model) or None
        asked = replace(config, parallel=1) if size.single else config
        n_ctx, n_sequences = choose_sizes(trained, taken, asked, lib.llama_model_size(self._lib_model))
        states = 0 if self._drafts else states_kept(size.state, n_sequences, free_memory())
        self._context = native.new_context(
            self._lib_model, config, n_ctx=n_ctx, n_sequences=n_sequences, states=states
        )
        self._abort = native.AbortFlag(self._context)
        whole = native.gpu_layers(config) if config.cpu_experts <= 0 else 0
        # The output counts as a layer: with one less than all, the first layer is the processor's.
        on = describe_devices(self._context, layers=header.layers + 1, layers_on_gpu=whole)
        self.reference_mode = ReferenceMode(self._context, header.types, on_cpu=GPU not in on)
        self.description += ", rounds in reference mode" * self.reference_mode.available + f", on {on}"
        max_batch = lib.llama_n_batch(self._context)
        self._batch = Batch(max_batch)
        self.vocabulary = LlamaVocabulary(self._lib_model)
        # The package's own function returns a pointer object, which takes longer to read than a number.
        self._output_of = find_function("llama_get_logits", ctypes.c_void_p, ctypes.c_void_p)
        kept, obstacle = lib.llama_n_rs_seq(self._context), ""
        self._sequences = Sequences(self._context)
        is_hybrid = lib.llama_model_is_hybrid(self._lib_model)
        if kept or is_hybrid or lib.llama_model_is_recurrent(self._lib_model):
            self._sequences = RecurrentSequences(self._context, kept)
            self.description += f", {kept} earlier states"
            if not kept and not self._drafts:
                obstacle = NO_STATES if states else NO_ROOM
        offloaded = offloaded_bytes(self._context, header, config)
        self.capabilities = Capabilities(
            n_ctx=n_ctx,
            trained_ctx=trained,
            max_sequences=n_sequences,
            max_batch=max_batch,
            saves=True,
            fast_alone=self.reference_mode.fast_alone,
            replays=self._sequences.replays,
            obstacle=obstacle,
            consecutive=not self._sequences.replays,
            splits_contexts=offloaded > 0 or not self.reference_mode.available,
            offloaded_bytes=offloaded,
            settling=SETTLING * on.startswith(REPLAYING),
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
        between = self._pad_between(batch, width) if width and not self._sequences.replays else []
        spans = sorted([*batch, *between]) if between else batch
        rows = self._batch.fill(spans, self._sequences.lengths, width)
        self._sequences.settle(batch)
        self.reference_mode.for_widths(longest, self._batch.length, exact=exact)
        code = lib.llama_decode(self._context, self._batch.native)
        if code:
            for span in spans:
                self._sequences.undo(span.sequence)
            if code == ABORTED:
                raise Interrupted
            if code == NO_CELL:
                raise EngineBusy(f"the model's KV cache has no room for {self._batch.length} more tokens")
            reason = native.last_error("no reason given")
            raise EngineError(f"llama.cpp failed to compute a forward: {reason} (llama_decode: {code})")
        for sequence, tokens, *_ in batch:
            self._sequences.advance(sequence, len(tokens), max(width, len(tokens)))
        for span in between:
            self._sequences.undo(span.sequence)
        return self._logits(rows)

    def _logits(self, n: int) -> LlamaLogits:
        """Wait for the device, and return the first ``n`` rows of the context's output buffer."""
        size = self.vocabulary.size
        buffer: Any = b""
        if n:
            buffer = (ctypes.c_float * (n * size)).from_address(self._output_of(self._context))
        rows = np.frombuffer(buffer, dtype=np.float32).reshape(n, size)
        rows.flags.writeable = False
        return LlamaLogits(rows)

    def _common_width(self, spans: Sequence[Span]) -> int:
        """The width to which shorter spans are padded; 0: no padding, because there is no room for it.
        llama.cpp advances streams by equal steps and computes the rest in forwards of its own: lengths of 5,
        3, 1 and 4 took 184 ms in one batch, padded to 5 each 98 ms."""
        width = max(len(span.tokens) for span in spans)
        room = all(self.length(span.sequence) + width <= self.capabilities.n_ctx for span in spans)
        room &= width * len(spans) <= self.capabilities.max_batch
        return width if room and self._sequences.may_fill(spans, width) else 0

    def _pad_between(self, batch: Sequence[Span], width: int) -> list[Span]:
        """Padding of the sequences between those of ``batch``, where computing it costs less: llama.cpp takes
        sequences together only if their numbers are consecutive. 15 of 16 took 144 ms, with padding 78 ms."""
        can, lengths, numbers = self.capabilities, self._sequences.lengths, [span.sequence for span in batch]
        among = {*range(numbers[0], numbers[-1])}.difference(numbers)
        before, total = len(batch) * width, (len(batch) + len(among)) * width
        # Attention takes as many cells of each sequence as the longest one has.
        longest = min(can.n_ctx, max(lengths[number] for number in numbers) + width)
        fits = total <= can.max_batch and not before <= can.exact_width < total and numbers == sorted(numbers)
        fits &= all(lengths.get(number, 0) + width <= longest for number in among)
        # On a CPU forwards of one, two and three rows take less time apart.
        pays = len(batch) >= max(len(among) * width, 1 if can.offloaded_bytes else 4)
        return [Span(number, batch[0].tokens[:1], 0) for number in among] if fits and pays else []

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
        return self._open_filled(lambda copy: self._sequences.copy(sequence, copy, length))

    def save(self, sequence: int) -> bytearray:
        return self._sequences.save(sequence)

    def restore(self, state: bytearray) -> int:
        return self._open_filled(lambda copy: self._sequences.restore(copy, state))

    def _open_filled(self, fill: Callable[[int], None]) -> int:
        """Open a sequence and fill it; closes it if that fails."""
        sequence = self.open()
        try:
            fill(sequence)
        except LocalspecError:
            self.close(sequence)
            raise
        return sequence

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
