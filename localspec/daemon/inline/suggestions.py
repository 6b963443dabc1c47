"""Completions that were made: for who asks the same again, types along, or says what became of one."""

from __future__ import annotations

import dataclasses
import hashlib
import secrets
from collections import OrderedDict
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

import msgspec

from localspec.completion.gap import Gap
from localspec.errors import Gone
from localspec.protocol.messages import CompletionItem, CompletionSource
from localspec.protocol.options import Options

KEPT = 250
"""answers"""
SHOWN = 1000
"""items that feedback may come for"""
TYPED = 128
"""characters that may have been typed along an item"""
TAIL = 256
"""characters before an item that are learnt with it"""
DIGEST = 16

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Asked:
    """What makes two completions alike; ``count`` is how many answers are wanted."""

    prefix: str
    suffix: str
    path: str | None
    language: str | None
    multiline: bool
    options: Options
    count: int = 1
    invoked: bool = False

    @cached_property
    def rest(self) -> bytes:
        """A digest of all but the prefix and the count."""
        rest = (self.suffix, self.path, self.language, self.multiline, self.invoked, self.options)
        return hashlib.blake2b(msgspec.msgpack.encode(rest), digest_size=DIGEST).digest()

    @property
    def gap(self) -> Gap:
        """What is to be filled."""
        return Gap(self.prefix, self.suffix, self.language, self.path, self.multiline)

    def after(self, text: str) -> Asked:
        """What an editor asks by itself once ``text`` was accepted."""
        return dataclasses.replace(self, prefix=self.prefix + text, count=1, invoked=False)


class Found(NamedTuple):
    """Texts that answer, by whom."""

    texts: tuple[str, ...]
    source: CompletionSource


class Kept(NamedTuple):
    """All the texts that came when so many were ``wanted``: equal ones count once."""

    texts: tuple[str, ...]
    wanted: int


@dataclasses.dataclass
class Shown:
    """An item that a client has, and as much of where it stands as is learnt with it; ``accepted`` characters
    of it were taken."""

    before: str
    text: str
    path: str | None
    options: Options
    accepted: int = 0


class Recent(Generic[T]):
    """What was used last, by keys; older things are forgotten."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[object, T] = OrderedDict()

    def get(self, key: object) -> T | None:
        if key in self._values:
            self._values.move_to_end(key)
        return self._values.get(key)

    def put(self, key: object, value: T) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._size:
            self._values.popitem(last=False)


class Suggestions:
    """The answers of this daemon, by what stood before and behind the cursor."""

    def __init__(self) -> None:
        self._answers: Recent[Kept] = Recent(KEPT)
        self._shown: Recent[Shown] = Recent(SHOWN)

    def keep(self, asked: Asked, texts: tuple[str, ...]) -> None:
        """``texts``, or nothing, is what there is to say."""
        self._answers.put((_digest(asked.prefix), asked.rest), Kept(texts, asked.count))

    def find(self, asked: Asked) -> Found | None:
        """The answer to the same question, or the longest rest of one along which was typed since."""
        best: Found | None = None
        for typed, digest in _prefixes(asked.prefix):
            texts = self._texts(digest, asked) or ()
            rests = tuple(text[len(typed) :] for text in texts if text.startswith(typed))
            rests = tuple(rest for rest in rests if rest.strip())
            if rests and (best is None or len(rests[0]) > len(best.texts[0])):
                best = Found(rests, "type-through" if typed else "cache")
        if best is None and self._texts(_digest(asked.prefix), asked) is not None:
            return Found((), "cache")
        return best

    def _texts(self, digest: bytes, asked: Asked) -> tuple[str, ...] | None:
        """What is known, if no more of it is wanted than was asked for."""
        kept = self._answers.get((digest, asked.rest))
        return None if kept is None or kept.wanted < asked.count else kept.texts

    def show(self, asked: Asked, texts: tuple[str, ...]) -> tuple[CompletionItem, ...]:
        """Items of these texts, for which feedback may come."""
        items = tuple(CompletionItem(secrets.token_hex(8), text) for text in texts)
        # Who does not want to be remembered is not held for longer than it takes.
        before = "" if asked.options.remember is False else asked.prefix[-TAIL:]
        for item in items:
            self._shown.put(item.id, Shown(before, item.text, asked.path, asked.options))
        return items

    def shown(self, item: str) -> Shown:
        """An item by its id. Raises :class:`Gone`."""
        shown = self._shown.get(item)
        if shown is None:
            raise Gone("this completion is not known any more", "Feedback is for recent completions.")
        return shown


def _digest(text: str) -> bytes:
    return hashlib.blake2b(_bytes(text), digest_size=DIGEST).digest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _prefixes(prefix: str) -> list[tuple[str, bytes]]:
    """What may have been typed since an earlier question, and the digest of what stood before that; the
    prefix is read once, however long it is."""
    start = max(0, len(prefix) - TYPED)
    hashed = hashlib.blake2b(_bytes(prefix[:start]), digest_size=DIGEST)
    found = [(prefix[start:], hashed.digest())]
    for at in range(start, len(prefix)):
        hashed.update(_bytes(prefix[at]))
        found.append((prefix[at + 1 :], hashed.copy().digest()))
    return found
