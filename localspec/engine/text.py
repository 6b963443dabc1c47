"""From token bytes to text that may be shown: whole code points, and nothing of a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from msgspec.structs import replace

from localspec.completion.stopping import StopRule
from localspec.protocol.events import Delta
from localspec.protocol.results import Likely, Token


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
        self._held: list[Token] = []
        self._held_texts: list[str] = []
        """the text of each token whose text is not certain yet"""
        self._ready: list[Token] = []
        self._ready_text = ""
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
        """Take in one token; True if it completed a stop string or the end that the rule looks for: the text
        ends before that."""
        text = self._decoder.decode(piece)
        made = Token(token, source, len(text), logprob, top)
        if not self._stop and self._rule is None:
            self._ready.append(made)
            self._ready_text += text
            return False
        self._held.append(made)
        self._held_texts.append(text)
        end = self._end(text)
        if end is not None:
            self._cut(end)
            return True
        if self._rule is None:
            self._release_certain()
        return False

    def _end(self, new: str) -> int | None:
        """How much of what is held stays, if the text has ended with its last characters, ``new``."""
        tail = "".join(self._held_texts) if self._stop else ""
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
        tail = "".join(self._held_texts)
        safe, n, length = len(tail) - self._undecided(tail), 0, 0
        while n < len(self._held) and length + self._held[n].chars <= safe:
            length += self._held[n].chars
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
        n = 0
        while length > 0 and n < len(self._held):
            held, text = self._held[n], self._held_texts[n][:length]
            self._held[n], self._held_texts[n] = replace(held, chars=len(text)), text
            length -= held.chars
            n += 1
        del self._held[n:], self._held_texts[n:]
        self._release(n)

    def _release(self, n: int) -> None:
        self._ready += self._held[:n]
        self._ready_text += "".join(self._held_texts[:n])
        del self._held[:n], self._held_texts[:n]

    def flush(self) -> None:
        """The text has ended without a stop string: nothing needs to be held any more."""
        self._release(len(self._held))

    def take(self) -> Delta | None:
        """The text that has become certain since the last call; None if there is none."""
        if not self._ready:
            return None
        delta = Delta(self._ready_text, tuple(self._ready))
        self._ready, self._ready_text = [], ""
        self.text += delta.text
        return delta
