"""The completions that were answered, for repeated requests, text typed along them, and feedback."""

from __future__ import annotations

import dataclasses
import hashlib
import secrets
from collections import deque
from functools import cached_property
from typing import NamedTuple

import msgspec

from localspec.completion.gap import Gap
from localspec.errors import Gone
from localspec.protocol.messages import CompletionItem, CompletionSource
from localspec.protocol.options import Options

KEPT = 250
"""answers that are kept"""
SHOWN = 1000
"""items for which feedback is accepted"""
TYPED = 128
"""most characters typed along an item"""
TAIL = 256
"""characters before an item that are learnt with it"""
COMPARED = 1 << 16
"""characters before the cursor by which an answer is found again, with their number in all: as many as a
prompt has"""


@dataclasses.dataclass(frozen=True)
class Query:
    """The parameters of a completion, by which equal ones are found; ``count``: number of answers."""

    gap: Gap
    options: Options
    count: int = 1
    invoked: bool = False

    @cached_property
    def rest(self) -> bytes:
        """A digest of all but the prefix and the count."""
        rest = (dataclasses.replace(self.gap, prefix=""), self.invoked, self.options)
        return hashlib.blake2b(msgspec.msgpack.encode(rest), digest_size=16).digest()

    def after(self, text: str) -> Query:
        """The automatic completion that follows once ``text`` was accepted."""
        return Query(dataclasses.replace(self.gap, prefix=self.gap.prefix + text), self.options)


class KnownAnswer(NamedTuple):
    texts: tuple[str, ...]
    source: CompletionSource


def hash_end(prefix: str, length: int) -> int:
    """The hash of the last :data:`COMPARED` of the first ``length`` characters: a whole file takes a
    millisecond for each answer that is kept."""
    return hash(prefix[max(0, length - COMPARED) : length])


class CachedAnswer(NamedTuple):
    """The distinct texts of an answer for which ``wanted`` were requested, after a prefix of ``length``
    characters that ends with those of this ``hash``; ``rest`` is that of its query."""

    texts: tuple[str, ...]
    wanted: int
    length: int
    hash: int
    rest: bytes

    def typed_since(self, query: Query) -> str | None:
        """The end of the prefix of ``query``, which was typed since; None if this is no answer before it."""
        prefix = query.gap.prefix
        typed = len(prefix) - self.length
        if not 0 <= typed <= TYPED or self.rest != query.rest or self.wanted < query.count:
            return None
        return prefix[self.length :] if hash_end(prefix, self.length) == self.hash else None


@dataclasses.dataclass
class Shown:
    """An item sent to a client, with the text ``before`` it that is learnt with it; the user has accepted
    ``accepted`` characters of it."""

    before: str
    text: str
    path: str | None
    options: Options
    accepted: int = 0


class SuggestionCache:
    """The answers of this daemon, by the text before and after the cursor."""

    def __init__(self) -> None:
        self._answers: deque[CachedAnswer] = deque(maxlen=KEPT)
        self._shown: dict[str, Shown] = {}

    def keep(self, query: Query, texts: tuple[str, ...]) -> None:
        """Store an answer, which may have no texts."""
        prefix = query.gap.prefix
        end = hash_end(prefix, len(prefix))
        self._answers.append(CachedAnswer(texts, query.count, len(prefix), end, query.rest))

    def find(self, query: Query) -> KnownAnswer | None:
        """The answer to the same request, or the longest rest of one along which the user has typed since."""
        best: KnownAnswer | None = None
        for kept in reversed(self._answers):
            if (typed := kept.typed_since(query)) is None:
                continue
            rests = tuple(text[len(typed) :] for text in kept.texts if text.startswith(typed))
            rests = tuple(rest for rest in rests if rest.strip())
            if rests and (best is None or not best.texts or len(rests[0]) > len(best.texts[0])):
                best = KnownAnswer(rests, "type-through" if typed else "cache")
            elif best is None and not typed:
                best = KnownAnswer((), "cache")
        return best

    def show(self, query: Query, texts: tuple[str, ...]) -> tuple[CompletionItem, ...]:
        """Items of these texts, for which feedback is accepted."""
        items = tuple(CompletionItem(secrets.token_hex(8), text) for text in texts)
        # Without `remember` no text before the cursor is kept.
        before = "" if query.options.remember is False else query.gap.prefix[-TAIL:]
        for item in items:
            self._shown[item.id] = Shown(before, item.text, query.gap.path, query.options)
            if len(self._shown) > SHOWN:
                del self._shown[next(iter(self._shown))]
        return items

    def find_shown(self, item: str) -> Shown:
        """An item by its id. Raises :class:`Gone`."""
        shown = self._shown.get(item)
        if shown is None:
            raise Gone(
                f"the completion {item[:40]!r} is not among the last {SHOWN}",
                "Send feedback for recent completions only.",
            )
        return shown
