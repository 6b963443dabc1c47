"""The text of one stream: deltas that went out, the last of which are kept, and those that wait."""

from __future__ import annotations

from collections import deque

from msgspec.structs import replace

from localspec.errors import Gone, InvalidOptions
from localspec.protocol import jsonrpc
from localspec.protocol.jsonrpc import Id
from localspec.protocol.messages import StreamDelta
from localspec.protocol.results import Token

TOKEN_BYTES = 48
"""approximate size of a token on the wire"""
MERGED_BYTES = 64 * 1024
"""size from which a delta takes no more text"""
DELTA_BYTES = 256
"""approximate size of a kept delta besides its text and tokens"""
KEPT_BYTES = 1024 * 1024
"""bytes of a stream's deltas that are kept for clients that resume it"""


class Merged:
    """A delta that waits to be sent, with all text since the last one."""

    __slots__ = ("_of", "size", "texts", "tokens")

    def __init__(self, of: Deltas) -> None:
        self._of = of
        self.texts: list[str] = []
        self.tokens: list[Token] = []
        self.size = 0

    def add(self, text: str, tokens: tuple[Token, ...]) -> int:
        """Add text and tokens; returns the bytes added."""
        self.texts.append(text)
        self.tokens.extend(tokens)
        grown = len(text) + TOKEN_BYTES * len(tokens)
        self.size += grown
        return grown

    def frame(self) -> str | None:
        """The frame of the delta, numbered as it is sent; None if it was sent elsewhere."""
        delta = self._of.number(self)
        return None if delta is None else jsonrpc.notification("stream/delta", delta)


class Deltas:
    """A stream's deltas, numbered from 0 as they are sent, tagged with the id of the following request."""

    def __init__(self, request: Id = 0, keep: int = KEPT_BYTES) -> None:
        self.request = request
        self._keep = keep
        self._seq = 0
        self._sealed = False
        self._waiting: deque[Merged] = deque()
        self._kept: deque[tuple[StreamDelta, int]] = deque()
        self._size = 0

    # Text of the worker.

    @property
    def open(self) -> Merged | None:
        """The waiting delta that takes more text, if any."""
        if not self._waiting or self._sealed or self._waiting[-1].size >= MERGED_BYTES:
            return None
        return self._waiting[-1]

    def begin(self) -> Merged:
        """Add a new delta behind the waiting ones; returns it."""
        self._sealed = False
        self._waiting.append(Merged(self))
        return self._waiting[-1]

    def seal(self) -> None:
        """Merge later text with none of the waiting deltas."""
        self._sealed = True

    def keep(self, text: str, tokens: tuple[Token, ...]) -> None:
        """Add text while no request follows the stream."""
        (self.open or self.begin()).add(text, tokens)
        while len(self._waiting) > 1:
            self.number(self._waiting[0])

    # Deltas to the client.

    def number(self, merged: Merged) -> StreamDelta | None:
        """Number ``merged`` as the next delta; returns None if it no longer waits."""
        if not self._waiting or self._waiting[0] is not merged:
            return None
        self._waiting.popleft()
        delta = StreamDelta(self.request, self._seq, "".join(merged.texts), tuple(merged.tokens))
        self._seq += 1
        size = merged.size + DELTA_BYTES
        self._kept.append((delta, size))
        self._size += size
        while self._size > self._keep:
            self._size -= self._kept.popleft()[1]
        return delta

    def settle(self) -> list[StreamDelta]:
        """Number the waiting deltas as if they had been sent; returns them."""
        settled = (self.number(self._waiting[0]) for _ in range(len(self._waiting)))
        return [delta for delta in settled if delta is not None]

    def resume(self, request: Id, after_seq: int) -> list[StreamDelta]:
        """Tag all deltas with ``request`` from now on; returns those after ``after_seq``.

        Raises :class:`Gone` if they are no longer kept, :class:`InvalidOptions` if there is no delta
        ``after_seq`` yet; then nothing is changed.
        """
        if after_seq >= self._seq:
            raise InvalidOptions(
                f"after_seq is {after_seq}, but only {self._seq} deltas were sent, numbered from 0",
                "Give the number of the last delta that was received, or -1.",
            )
        if after_seq + 1 < self._seq - len(self._kept):
            raise Gone(f"the deltas after number {after_seq} are no longer kept")
        missed = [delta for delta, _ in self._kept if delta.seq > after_seq] + self.settle()
        self.request = request
        return [replace(delta, request=request) for delta in missed]
