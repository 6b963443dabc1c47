"""The sequences of one context: their lengths, and their rollback.

Attention cells can be cut off anywhere. A recurrent state cannot: only the one after the last token exists.
llama.cpp keeps the states after each of the last ``K + 1`` tokens of a forward (``n_rs_seq`` of the context)
for some architectures (src/llama-arch.cpp, ``llm_arch_supports_rs_rollback``), and copies whole states.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import llama_cpp.llama_cpp as lib

from localspec.backends.base import Span
from localspec.errors import EngineError

LENGTH = struct.Struct("<I")
"""header of a saved sequence, its length in tokens, before llama.cpp's own format"""
WHOLE, RECURRENT = lib.LLAMA_STATE_SEQ_FLAGS_NONE, lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
"""parts of a sequence to save: all of it, or its recurrent states alone, without cells of attention"""


class Sequences:
    """Sequences that consist of cells alone: `truncate` keeps any length."""

    replays = False

    def __init__(self, context: Any) -> None:
        self._context = context
        self._memory = lib.llama_get_memory(context)
        self.lengths: dict[int, int] = {}

    def open(self, sequence: int) -> None:
        """Open an empty sequence."""
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
        """Drop the cells that a failed forward has written."""
        self._cut(sequence, self.lengths[sequence])

    def rollback(self, sequence: int) -> int | None:
        """See :meth:`Backend.rollback`."""
        return None

    def reach(self, sequence: int, length: int) -> int:
        """See :meth:`Backend.reach`."""
        return length

    def truncate(self, sequence: int, length: int) -> int:
        """See :meth:`Backend.truncate`; ``length`` is at most the present one."""
        if length < self.lengths[sequence]:
            self._cut(sequence, length)
            self.lengths[sequence] = length
        return length

    def mark(self, sequence: int) -> None:
        """See :meth:`Backend.mark`."""

    def copy(self, sequence: int, copy: int, length: int) -> None:
        """Fill ``copy``, which is empty, with the first ``length`` tokens of ``sequence``, or fewer."""
        # Between streams only a whole sequence can be copied; the excess is cut off again.
        lib.llama_memory_seq_cp(self._memory, sequence, copy, 0, -1)
        self.lengths[copy] = self.lengths[sequence]
        self.truncate(copy, length)

    def save(self, sequence: int) -> bytearray:
        """See :meth:`Backend.save`."""
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
    """Sequences with a recurrent state, of which llama.cpp keeps ``kept`` earlier ones.

    After a forward of ``w`` tokens a sequence can go back by ``min(kept, w - 1)``; llama.cpp reports ``kept``
    however short the forward was, which is wrong. It can go back only once before the next forward, so a cut
    is only noted, and made when something depends on it. Further back are only the marks, which are copies
    of the state, and the beginning.
    """

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
        """Return the mark if it is at or before ``length``; None if there is none."""
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
