"""From token bytes to text that may be shown: whole code points, and nothing of a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import NamedTuple

from localspec.completion.stopping import StopRule
from localspec.protocol.results import Chunk, Likely, Token


class _Held(NamedTuple):
    """A token whose text is not yet certain to be shown."""

    id: int
    source: str
    text: str
    logprob: float | None
    top: tuple[Likely, ...]


class TextStream:
    """Feed tokens with :meth:`push`, read what is certain with :meth:`take`.

    A token's text is held back while the end of the text could still become a stop string; the
    bytes of an unfinished character wait for the token that ends it, and are dropped at the end.
    With a ``rule`` all is held back until it ends the text, or :meth:`flush` does.
    """

    def __init__(self, stop: Sequence[str] = (), rule: StopRule | None = None) -> None:
        self._stop = tuple(stop)
        self._rule = rule
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held: list[_Held] = []
        self._ready: list[_Held] = []
        self.text = ""
        """everything taken so far"""
        self.stop: str | None = None
        """the stop string that ended it"""

    def push(
        self,
        token: int,
        piece: bytes,
        source: str,
        logprob: float | None = None,
        top: tuple[Likely, ...] = (),
    ) -> bool:
        """Take in one token; True when it completed a stop string, or what the rule ends at: the text ends
        before that."""
        text = self._decoder.decode(piece)
        self._held.append(_Held(token, source, text, logprob, top))
        if not self._stop and self._rule is None:
            self._release(len(self._held))
            return False
        end = self._end(text)
        if end is not None:
            self._cut(end)
            return True
        if self._rule is None:
            self._release_certain()
        return False

    def _end(self, new: str) -> int | None:
        """How much of what is held stays, if the text has ended with its last characters, ``new``."""
        tail = "".join(held.text for held in self._held) if self._stop else ""
        ruled = None if self._rule is None else self._rule.feed(new)
        found = [(at + len(stop), at, stop) for stop in self._stop if (at := tail.find(stop)) >= 0]
        if not found:
            return ruled
        # The stop string that was complete first, so that the text does not depend on where tokens end.
        _, at, stop = min(found)
        if ruled is not None and ruled < at:
            return ruled
        self.stop = stop
        return at

    def _release_certain(self) -> None:
        """Release what no stop string can begin in any more."""
        tail = "".join(held.text for held in self._held)
        safe, n, length = len(tail) - self._undecided(tail), 0, 0
        while n < len(self._held) and length + len(self._held[n].text) <= safe:
            length += len(self._held[n].text)
            n += 1
        self._release(n)

    def _undecided(self, tail: str) -> int:
        """Length of the longest end of ``tail`` that a stop string starts with."""
        longest = 0
        for stop in self._stop:
            for n in range(min(len(stop) - 1, len(tail)), longest, -1):
                if tail.endswith(stop[:n]):
                    longest = n
                    break
        return longest

    def _cut(self, length: int) -> None:
        """Release ``length`` characters of what is held and drop the rest."""
        kept: list[_Held] = []
        for held in self._held:
            if length <= 0:
                break
            kept.append(held._replace(text=held.text[:length]))
            length -= len(held.text)
        self._held = kept
        self._release(len(kept))

    def _release(self, n: int) -> None:
        self._ready += self._held[:n]
        del self._held[:n]

    def flush(self) -> None:
        """The text has ended without a stop string: nothing needs to be held any more."""
        self._release(len(self._held))

    def take(self) -> Chunk | None:
        """What has become certain since the last call; None if nothing has."""
        if not self._ready:
            return None
        text = "".join(held.text for held in self._ready)
        tokens = tuple(Token(h.id, h.source, len(h.text), h.logprob, h.top) for h in self._ready)
        self._ready = []
        self.text += text
        return Chunk(text, tokens)
