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
"""about what a token takes on the wire"""
MERGED_BYTES = 64 * 1024
"""a delta this large takes no more"""
DELTA_BYTES = 256
"""about what a kept delta takes besides its text and tokens"""
KEPT_BYTES = 1024 * 1024
"""what is kept of a stream for whoever resumes it"""


class Merged:
    """One delta to be: what came in since the last one went out."""

    __slots__ = ("_of", "size", "texts", "tokens")

    def __init__(self, of: Deltas) -> None:
        self._of = of
        self.texts: list[str] = []
        self.tokens: list[Token] = []
        self.size = 0

    def add(self, text: str, tokens: tuple[Token, ...]) -> int:
        """Take more in; returns by how much it grew."""
        self.texts.append(text)
        self.tokens.extend(tokens)
        grown = len(text) + TOKEN_BYTES * len(tokens)
        self.size += grown
        return grown

    def frame(self) -> str | None:
        """The delta, numbered as it goes out; None if that has happened elsewhere."""
        delta = self._of.number(self)
        return None if delta is None else jsonrpc.notification("stream/delta", delta)


class Deltas:
    """A stream's deltas, numbered from 0 as they are put on the wire, tagged with who listens now."""

    def __init__(self, request: Id = 0, keep: int = KEPT_BYTES) -> None:
        self.request = request
        self._keep = keep
        self._seq = 0
        self._sealed = False
        self._waiting: deque[Merged] = deque()
        self._kept: deque[tuple[StreamDelta, int]] = deque()
        self._size = 0

    # What comes in.

    @property
    def open(self) -> Merged | None:
        """The delta that waits and takes more, if there is one."""
        if not self._waiting or self._sealed or self._waiting[-1].size >= MERGED_BYTES:
            return None
        return self._waiting[-1]

    def begin(self) -> Merged:
        """A new delta, which waits behind the others."""
        self._sealed = False
        self._waiting.append(Merged(self))
        return self._waiting[-1]

    def seal(self) -> None:
        """What comes in from now on is not merged with what waits."""
        self._sealed = True

    def keep(self, text: str, tokens: tuple[Token, ...]) -> None:
        """Take text in while nobody listens."""
        (self.open or self.begin()).add(text, tokens)
        while len(self._waiting) > 1:
            self.number(self._waiting[0])

    # What goes out.

    def number(self, merged: Merged) -> StreamDelta | None:
        """The delta that ``merged`` became, as it goes out; None if it no longer waits."""
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
        """Number what waits as if it had been sent; returns it."""
        settled = (self.number(self._waiting[0]) for _ in range(len(self._waiting)))
        return [delta for delta in settled if delta is not None]

    def resume(self, request: Id, after_seq: int) -> list[StreamDelta]:
        """Tag all with ``request`` from now on; returns what it missed.

        Raises :class:`Gone` if that is no longer kept, :class:`InvalidOptions` if there is no delta
        ``after_seq`` yet; then nothing is changed.
        """
        if after_seq >= self._seq:
            raise InvalidOptions(
                f"of {self._seq} deltas none has the number {after_seq}", "Give the last that came."
            )
        if after_seq + 1 < self._seq - len(self._kept):
            raise Gone("what the stream said then is no longer kept", "Read the session instead.")
        missed = [delta for delta, _ in self._kept if delta.seq > after_seq] + self.settle()
        self.request = request
        return [replace(delta, request=request) for delta in missed]
