"""The backend contract over one MLX model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from localspec.backends.base import (
    Capabilities,
    Span,
    check_length,
    first_free,
    hash_of_end,
)
from localspec.backends.mlx import native
from localspec.backends.mlx.attention import Attention, ForwardStep
from localspec.backends.mlx.layers import Cells, Layers, State, layers_of
from localspec.backends.mlx.logits import FAULTS, MlxLogits
from localspec.backends.mlx.prefetch import Computed, StepPrefetch
from localspec.backends.mlx.slot import Rewinding, Slot, SlotContent, pack, unpack
from localspec.backends.mlx.vocabulary import MlxVocabulary
from localspec.errors import EngineError, ModelInvalid
from localspec.models.directory import ModelDirectory
from localspec.models.fit import CellBytes, choose_sizes
from localspec.models.gguf import REMEDY
from localspec.models.machine import build_for
from localspec.models.model import Model
from localspec.models.needs import widest_forward
from localspec.protocol.options import Options
from localspec.protocol.requests import EngineConfig

HEADLESS = 32
"""this many tokens without rows, or more, get a forward of their own, in which MLX computes no logits"""
TIDY = 64
"""tokens of a forward after which MLX's cache of freed memory is cleared, as mlx-lm does"""


class MlxBackend:
    """See :class:`localspec.backends.base.Backend`. Raises :class:`ModelNotFound` and :class:`ModelInvalid`
    from a check of the directory before MLX opens it. With a ``group`` of ranks it computes its share of the
    model, and every rank must call the same methods in the same order."""

    name = "mlx"

    def __init__(
        self,
        model: Model,
        config: EngineConfig | None = None,
        *,
        progress: Callable[[float], None] | None = None,
        group: Any = None,
    ) -> None:
        config = config or EngineConfig()
        directory = model.header
        if not isinstance(directory, ModelDirectory):
            raise ModelInvalid(f"{model.path} is a file, not a model directory", REMEDY)
        self.model = model.own_name
        self._model = native.load_model(directory, progress, group)
        self._wired = native.Wired()
        self._slots: dict[int, Slot] = {}
        self._layers = Layers()
        self.attention: list[Attention] = []
        self._rewinding, self._prefetch = Rewinding(self._layers), StepPrefetch(False)
        self._is_filling, self._group = False, group
        try:
            self._start(directory, config)
        except BaseException:
            self.free()
            raise

    def _start(self, directory: ModelDirectory, config: EngineConfig) -> None:
        size, taken = self._try(config)
        self.vocabulary = MlxVocabulary(directory, size)
        self.defaults: Options = self.vocabulary.defaults
        n_ctx, n_sequences = choose_sizes(directory.context, taken, config, directory.size)
        if self._group is not None:
            n_sequences = int(mx.distributed.all_min(mx.array(n_sequences), group=self._group).item())
        max_batch = widest_forward(config, n_sequences)
        self._layers = layers_of(self._model, slack=max_batch, bits=config.kv_bits)
        parts = self._layers.parts
        self.attention = [part.attention for part in parts if isinstance(part, Cells)]
        self._batches = all(part.batches for part in parts)
        self._rewinding = Rewinding(self._layers)
        self._prefetch = StepPrefetch(self._group is None and not self._rewinding.in_place)
        self.capabilities = Capabilities(
            n_ctx=n_ctx,
            trained_ctx=directory.context,
            max_sequences=n_sequences,
            max_batch=max_batch,
            replays=self._rewinding.replays,
            obstacle=self._rewinding.obstacle,
            batches=self._batches,
            saves=not self._rewinding.replays and not self._rewinding.in_place,
            offloaded_bytes=directory.size if native.is_on_gpu() else 0,
        )
        self.description = (
            f"mlx {native.version()} {directory.architecture} {directory.quantisation}"
            f" {directory.size} bytes {hash_of_end(directory.weights[-1])}, {native.device()},"
            f" chunks of {config.chunk}"
            + f", {config.kv_bits}-bit cells" * bool(config.kv_bits)
            + f", build {build_for('mlx')}"
        )

    def _try(self, config: EngineConfig) -> tuple[int, CellBytes]:
        """Check the model by one token; return the number of its logits, and the bytes of a sequence."""
        layers = layers_of(self._model, slack=widest_forward(config, 1), bits=config.kv_bits)
        views = layers.views(ForwardStep(0, [0], 1), layers.new())
        try:
            logits = self._model(mx.array([[0]]), cache=views)
            mx.eval(logits)
        except Exception as error:
            # A wrong number in a configuration can lead to any exception, in mlx-lm or in MLX.
            cells = f" with kv_bits = {config.kv_bits}" if config.kv_bits else ""
            raise ModelInvalid(
                f"mlx-lm cannot run {self.model}{cells}: {native.sentence(error)}",
                "Set kv_bits = 0." if cells else "Give a complete MLX directory, or choose another model.",
            ) from None
        taken = CellBytes()
        for layer, state in zip(layers.parts, layers.after(views), strict=True):
            taken += layer.measure_bytes(state)
        return logits.shape[-1], taken

    def open(self) -> int:
        sequence = first_free(self._slots, self.capabilities)
        places = {slot.place for slot in self._slots.values()}
        self._slots[sequence] = Slot(next(i for i in range(len(places) + 1) if i not in places))
        return sequence

    def forward(self, batch: Sequence[Span]) -> MlxLogits:
        self.check(batch)
        if self._is_filling:
            # One piece of a prompt is computed while the next is prepared; more would only queue up, where
            # a cancel cannot stop them.
            mx.eval(self._arrays())
        step, longest = _plain_step(batch), max(len(span.tokens) for span in batch)
        slots = [self._slots[span.sequence] for span in batch]
        prefetched = self._prefetch.take(slots[0], step)
        for slot, span in zip(slots, batch, strict=True):
            filled = longest if self._batches else len(span.tokens)
            slot.written = max(slot.written, slot.length + filled)
        before = [self._rewinding.take(slot) for slot in slots]
        states, logits = prefetched or self._compute(batch, slots, before)
        for slot, span, held, after in zip(slots, batch, before, states, strict=True):
            self._rewinding.advance(slot, held, len(span.tokens), after)
        if self._prefetch.is_due(slots[0], step, logits) and slots[0].length < self.capabilities.n_ctx:
            self._begin(slots[0], logits)
        self._is_filling = not any(span.rows for span in batch)
        if longest >= TIDY:
            mx.clear_cache()
        return logits

    def _compute(
        self, batch: Sequence[Span], slots: Sequence[Slot], before: Sequence[SlotContent]
    ) -> Computed:
        try:
            states, rows = self._rows(batch, slots, before)
            return states, MlxLogits(rows, self._arrays(*states))
        except FAULTS as error:
            raise EngineError(f"MLX failed to compute a forward: {native.sentence(error)}") from None

    def _begin(self, slot: Slot, logits: MlxLogits) -> None:
        """Begin the next plain step before its token has been read from the device."""
        slot.written = max(slot.written, slot.length + 1)
        try:
            states, rows = self._run(slot.place, slot.held, logits.best)
            self._prefetch.keep([states], MlxLogits(rows[0], self._arrays(states)))
        except FAULTS:
            # The forward itself will fail again, and raise its error then.
            self._prefetch.forget()

    def check(self, batch: Sequence[Span]) -> None:
        """Raise :class:`EngineError` if a forward of ``batch`` is not possible."""
        total = sum(len(span.tokens) for span in batch)
        if not 0 < total <= self.capabilities.max_batch:
            most = self.capabilities.max_batch
            raise EngineError(f"internal error: a forward of {total} tokens, 1 to {most} are possible")
        size = self.vocabulary.size
        for sequence, tokens, *_ in batch:
            odd = next((token for token in tokens if not 0 <= token < size), None)
            if odd is not None:
                # MLX would read beyond the embedding, or end this process.
                raise EngineError(
                    f"internal error: the vocabulary of {self.model} has no token {odd}, only {size} tokens"
                )
            if self._slots[sequence].length + len(tokens) > self.capabilities.n_ctx:
                raise EngineError(
                    f"internal error: sequence {sequence} has no room for {len(tokens)} more tokens"
                )

    def _rows(
        self, batch: Sequence[Span], slots: Sequence[Slot], before: Sequence[SlotContent]
    ) -> tuple[list[Sequence[State]], mx.array]:
        """The states after the forward, and the requested logits of shape (rows, vocabulary size)."""
        if len(batch) > 1 and self._batches:
            return [self._rewinding.states(held) for held in before], self._together(batch, slots)
        each = [self._alone(*one) for one in zip(slots, before, batch, strict=True)]
        states, rows = [found[0] for found in each], [found[1] for found in each]
        return states, rows[0] if len(rows) == 1 else mx.concatenate(rows)

    def _alone(self, slot: Slot, held: SlotContent, span: Span) -> tuple[Sequence[State], mx.array]:
        _, tokens, rows, _ = span
        headless = len(tokens) - rows
        if not rows or headless < HEADLESS:
            headless = 0
        else:
            states, _ = self._run(slot.place, held, mx.array([tokens[:headless]]))
            held = SlotContent(held.length + headless, states)
        states, logits = self._run(slot.place, held, mx.array([tokens[headless:]]))
        return states, logits[0, logits.shape[1] - rows :]

    def _run(self, place: int, held: SlotContent, tokens: mx.array) -> tuple[Sequence[State], mx.array]:
        """Feed tokens of shape (1, n) to the model; return the states after them, and logits of shape
        (1, n, vocabulary size), not computed yet."""
        step = ForwardStep(place, [held.length], tokens.shape[1])
        views = self._layers.views(step, self._rewinding.states(held))
        logits: mx.array = self._model(tokens, cache=views)
        return self._layers.after(views), logits

    def _together(self, batch: Sequence[Span], slots: Sequence[Slot]) -> mx.array:
        """Feed all sequences to the model at once, the shorter spans padded to the longest; return the
        requested logits of shape (rows, vocabulary size)."""
        self._side_by_side(slots)
        first, width = min(slot.place for slot in slots), max(len(span.tokens) for span in batch)
        filled: list[list[int]] = [[] for _ in batch]
        lengths, wanted = [0] * len(batch), list[int]()
        for slot, (_, tokens, rows, _) in zip(slots, batch, strict=True):
            row, n = slot.place - first, len(tokens)
            filled[row] = [*tokens] + [tokens[-1]] * (width - n)
            lengths[row] = slot.length
            wanted += range(row * width + n - rows, row * width + n)
        views = self._layers.views(ForwardStep(first, lengths, width), self._layers.new())
        logits: mx.array = self._model(mx.array(filled), cache=views)
        return logits.reshape(len(batch) * width, -1)[mx.array(wanted, dtype=mx.int32)]

    def _side_by_side(self, slots: Sequence[Slot]) -> None:
        """Move rows if those of ``slots`` are not adjacent, as happens only when the set of sequences that
        decode together has changed."""
        places = sorted(slot.place for slot in slots)
        if places[-1] - places[0] == len(places) - 1:
            return
        order = [*slots, *(slot for slot in self._slots.values() if slot not in slots)]
        rows = [slot.place for slot in order]
        moved = [each.rearrange(rows) for each in self.attention]
        for each, cells in zip(self.attention, moved, strict=True):
            each.set(cells)
        for place, slot in enumerate(order):
            slot.place = place

    def _arrays(self, *more: Sequence[State]) -> list[mx.array]:
        """The arrays of all sequences, and of ``more`` states."""
        found = [array for each in self.attention for array in each.arrays()]
        for states in (*(slot.held.states for slot in self._slots.values()), *more):
            # An empty sequence has none.
            for layer, state in zip(self._layers.parts, states):  # noqa: B905
                found += layer.arrays(state)
        return found

    def rollback(self, sequence: int) -> int | None:
        return 0 if self._rewinding.obstacle else None

    def reach(self, sequence: int, length: int) -> int:
        return self._rewinding.reach(self._slots[sequence], length)

    def truncate(self, sequence: int, length: int) -> int:
        slot = self._slots[sequence]
        check_length(sequence, slot.length, length)
        return self._rewinding.cut(slot, length)

    def mark(self, sequence: int) -> None:
        self._rewinding.mark(self._slots[sequence])

    def fork(self, sequence: int, length: int) -> int:
        slot = self._slots[sequence]
        check_length(sequence, slot.length, length)
        copy = self.open()
        try:
            for each in self.attention:
                each.set_row(self._slots[copy].place, each.row(slot.place, slot.length))
            self._rewinding.copy(slot, self._slots[copy], length)
        except BaseException:
            self.close(copy)
            raise
        return copy

    def preempt(self, on: bool) -> None:
        return

    def save(self, sequence: int) -> bytearray:
        slot = self._slots[sequence]
        layers = [each.row(slot.place, slot.length) for each in self.attention]
        return pack(slot.length, slot.written, layers)

    def restore(self, state: bytearray) -> int:
        length, written, layers = unpack(state)
        copy = self.open()
        slot = self._slots[copy]
        try:
            for each, cells in zip(self.attention, layers, strict=True):
                each.set_row(slot.place, cells)
        except FAULTS as error:
            self.close(copy)
            raise EngineError(f"the saved sequence cannot be restored: {native.sentence(error)}") from None
        slot.written = written
        slot.held = SlotContent(length, self._rewinding.states(SlotContent()))
        return copy

    def close(self, sequence: int) -> None:
        self._prefetch.forget()
        del self._slots[sequence]
        if not self._slots:
            for each in self.attention:
                each.clear()
            mx.clear_cache()

    def length(self, sequence: int) -> int:
        return self._slots[sequence].length

    def free(self) -> None:
        self._slots.clear()
        self._layers, self.attention, self._model = Layers(), [], None
        self._rewinding, self._prefetch = Rewinding(self._layers), StepPrefetch(False)
        self._wired.release()
        mx.clear_cache()


def _plain_step(batch: Sequence[Span]) -> int | None:
    """Return the token of a forward of one sequence by one token, a plain step; None for any other."""
    _, tokens, rows, _ = batch[0]
    return tokens[0] if len(batch) == len(tokens) == rows == 1 else None
