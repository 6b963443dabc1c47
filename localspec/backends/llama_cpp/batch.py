"""llama.cpp's batch: the tokens of one forward, with their positions and sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import llama_cpp.llama_cpp as lib

from localspec.backends.base import Span
from localspec.errors import EngineError


class Batch:
    """A batch of at most ``size`` tokens, of one sequence each; ``native`` is llama.cpp's own.

    Its arrays are held here: ctypes makes a new object each time one is read from the structure.
    """

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
            start, last = lengths[span.sequence], len(span.tokens) - 1
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
