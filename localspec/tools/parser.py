"""The incremental parser: from the text of a chat's answer to its answer, its thoughts and its tool calls."""

from __future__ import annotations

import json
import re
import secrets
import string
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from localspec.protocol.requests import CallBegun, Channel, ToolCall
from localspec.tools.families import ALL, MOST_CALLS, Form, as_json, matched, trigger, undecided

IDS = string.ascii_letters + string.digits
STEP = re.compile(r'["\\{}\[\]]')
"""the characters of JSON by which the end of an object is found"""
BARE_KEY = re.compile(r"([{,]\s*)([\w.-]+)\s*:")


class Piece(NamedTuple):
    """A part of the text: what it shows on a channel, None for markup, and the length of what it was made
    of, which is that of ``text`` unless it was translated."""

    channel: Channel | None
    text: str
    source: int
    call: CallBegun | None = None


Take = Callable[[int, str], bool | None]
"""takes a match by its end and name; False: waits for more text, None: it is no match"""
Options = Sequence[tuple[str, Take]]
"""patterns, and what takes them"""


class Parser:
    """Takes text in pieces of any size. What may become markup is held back, what looked like it and is not
    is text. Whitespace beside markup is part of it."""

    def __init__(self, form: Form) -> None:
        self._form, self._family = form, form.family
        self._rest = ""
        self._pieces: list[Piece] = []
        self._texts: dict[Channel, list[str]] = {"answer": [], "thinking": []}
        self._calls: list[tuple[CallBegun, list[str]]] = []
        # A JSON object must follow, so that what only looks like a call is text.
        self._object = "" if self._family.tags.opens else "{"
        calls = self._heads(self._family.opens) if form.tools else []
        marks = [(mark, self._mark) for mark in self._family.marks]
        thought = [(form.thought[0], self._think)] if form.thought else []
        self._at_start: Options = [*calls, *thought, *marks]
        self._inside: Options = [each for each in (*calls, *marks) if each[0][0] in "<[`"]
        self._triggers = {trigger(pattern) for pattern, _ in self._inside}
        self._tails: Options = [(tail, self._ended) for tail in self._family.tails]
        closing: Options = [(self._family.closes, self._mark)] if self._family.closes else []
        self._after: Options = [*self._heads(self._family.between), *closing]
        self._elements: Options = [(self._family.tags.opens, self._element), *self._tails]
        self._state = self._thinking if form.opened else self._start
        self._fresh = form.opened
        """True behind markup, where whitespace is hidden"""
        self.full = False
        """True if one call more than possible has begun, at which the answer ends"""
        self._final = self._hides = self._quoted = False
        self._depth = self._skipped = self._keys = 0
        self._types: Any = ()
        """of the value that is read"""

    def _heads(self, before: str) -> list[tuple[str, Take]]:
        return [(f"{before}{head}{self._object}", self._call) for head in self._family.heads]

    @property
    def plain(self) -> bool:
        """True if all that follows is the answer."""
        return self._state == self._answer and not self._inside and not self._rest

    def said(self, channel: Channel) -> str:
        return "".join(self._texts[channel])

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(ToolCall(begun.id, begun.name, "".join(texts)) for begun, texts in self._calls)

    def feed(self, text: str) -> list[Piece]:
        """The pieces that ``text`` makes certain."""
        self._rest += text
        while self._rest and self._state():
            pass
        pieces, self._pieces = self._pieces, []
        return pieces

    def finish(self, *, cut: bool = False) -> list[Piece]:
        """The last pieces, at the end of the text. What was held back is text, or hidden if the text was
        ``cut``, unless it is one character or a fence, and behind no call."""
        self._final = True
        self._hides = cut and (bool(self._calls) or len(self._rest.strip().lstrip("`")) > 1)
        pieces = self.feed("")
        self._hide(len(self._rest))
        return [*pieces, *self.feed("")]

    # Pieces take characters off the rest.

    def _show(self, channel: Channel, n: int, text: str | None = None) -> None:
        if self._hides and (channel != "call" or not n):
            return self._hide(n)
        shown = self._rest[:n] if text is None else text
        self._rest = self._rest[n:]
        if not (n or shown):
            return
        begun, texts = self._calls[-1] if channel == "call" else (None, self._texts[channel])
        texts.append(shown)
        self._pieces.append(Piece(channel, shown, n, begun))

    def _hide(self, n: int) -> None:
        if n:
            self._pieces.append(Piece(None, "", n))
            self._rest = self._rest[n:]

    def _hide_blank(self) -> bool:
        """Hide whitespace at the start of the rest; return True if more follows."""
        self._hide(len(self._rest) - len(self._rest.lstrip()))
        return bool(self._rest)

    def _take(self, options: Options, other: Take) -> bool:
        """Take the longest option that the rest begins with, or ``other``; False if more text must decide."""
        found = [(*match, take) for pattern, take in options if (match := matched(pattern, self._rest))]
        if not self._final and any(end == ALL for end, _, _ in found):
            return False
        end, name, take = max(found, key=lambda each: each[0], default=(ALL, "", other))
        taken = None if end == ALL else take(end, name)
        return bool(other(0, "") if taken is None else taken)

    # States: each returns True to go on at once, False to wait for more text.

    def _start(self) -> bool:
        if self._fresh and not self._hide_blank():
            return False
        return self._take(self._at_start, self._text)

    def _text(self, *_: object) -> bool:
        self._fresh, self._state = False, self._answer
        return True

    def _answer(self) -> bool:
        found = [at for mark in self._triggers if (at := self._rest.find(mark)) >= 0]
        if not found and self._final:
            self._show("answer", len(self._rest))
            return False
        at = min(found, default=len(self._rest) - undecided(self._rest, self._triggers))
        self._show("answer", len(self._rest[:at].rstrip()) if self._inside else at)
        if not found:
            return False
        return self._take(self._inside, self._unmarked)

    def _unmarked(self, *_: object) -> bool:
        self._show("answer", 1 + len(self._rest) - len(self._rest.lstrip()))
        return True

    def _thinking(self) -> bool:
        if self._fresh and not self._hide_blank():
            return False
        assert self._form.thought is not None
        self._fresh, closes = False, self._form.thought[1]
        at = self._rest.find(closes)
        if at < 0 and self._final:
            self._show("thinking", len(self._rest))
            return False
        upto = at if at >= 0 else len(self._rest) - undecided(self._rest, (closes,))
        shown = len(self._rest[:upto].rstrip())
        self._show("thinking", shown)
        return at >= 0 and self._mark(at - shown + len(closes))

    def _mark(self, end: int, _: str = "") -> bool:
        self._hide(end)
        self._fresh, self._state = True, self._start
        return True

    def _think(self, end: int, _: str) -> bool:
        self._mark(end)
        self._state = self._thinking
        return True

    # Calls.

    def _drop(self) -> bool:
        self._hide(len(self._rest))
        return False

    def _call(self, end: int, name: str) -> bool | None:
        if all(tool.name != name for tool in self._form.tools):
            return None
        if len(self._calls) == MOST_CALLS:
            self.full, self._state = True, self._drop
            return True
        end -= len(self._object)
        if self._family.quote:
            return self._whole(end, name)
        self._begin(name)
        self._hide(end)
        self._keys = 0
        self._state = self._json if self._object else self._parts
        return True

    def _begin(self, name: str) -> None:
        id = "call_" + "".join(secrets.choice(IDS) for _ in range(9))
        self._calls.append((CallBegun(len(self._calls), id, name), []))

    def _ended(self, end: int, _: str = "") -> bool:
        if self._object:
            self._hide(end)
        else:
            self._show("call", end, "}" if self._keys else "{}")
        self._state = self._next
        return True

    def _next(self) -> bool:
        return self._take(self._after, self._mark)

    def _json(self) -> bool:
        """Show a JSON object up to its end."""
        for found in STEP.finditer(self._rest, self._skipped):
            at, mark = found.start(), found[0]
            if at < self._skipped:
                continue
            if mark == "\\":
                self._skipped = at + 2
            elif mark == '"':
                self._quoted = not self._quoted
            elif not self._quoted:
                self._depth += 1 if mark in "{[" else -1
                if not self._depth:
                    self._show("call", at + 1)
                    self._skipped, self._state = 0, self._tail
                    return True
        self._skipped = max(0, self._skipped - len(self._rest))
        self._show("call", len(self._rest))
        return False

    def _tail(self) -> bool:
        return self._take(self._tails, self._ended)

    def _whole(self, end: int, name: str) -> bool | None:
        """Show a call with bare keys, once all of it has come."""
        tail = self._family.tails[0]
        at = self._rest.find(tail, end)
        if at < 0:
            return None if self._final else False
        parts = self._rest[end:at].split(self._family.quote)
        keyed = (BARE_KEY.sub(r'\1"\2":', part) for part in parts[::2])
        texts = [as_json(part) for part in parts[1::2]]
        arguments = "".join(each for pair in zip(keyed, [*texts, ""], strict=False) for each in pair)
        if not _is_json(arguments):
            return None
        self._begin(name)
        self._show("call", at + len(tail), arguments)
        self._state = self._next
        return True

    def _parts(self) -> bool:
        return self._take(self._elements, self._ended)

    def _element(self, end: int, key: str) -> bool:
        self._show("call", end, f"{', ' if self._keys else '{'}{as_json(key)}: ")
        self._keys += 1
        called = self._calls[-1][0].name
        schemas = (tool.parameters.get("properties") for tool in self._form.tools if tool.name == called)
        self._types = types_of(next(schemas, None), key)
        self._state = self._leading
        return True

    def _leading(self) -> bool:
        """Hide the line break between an element's mark and its value."""
        if self._family.tags.opens.endswith("\n") and self._rest[0] == "\n":
            self._hide(1)
        if self._types == ("string",):
            self._show("call", 0, '"')
        self._state = self._value
        return True

    def _value(self) -> bool:
        mark = self._family.tags.closes.rstrip()
        closes, streams = mark.lstrip(), self._types == ("string",)
        at = self._rest.find(closes)
        if at < 0:
            upto = len(self._rest) - undecided(self._rest, (mark, closes))
            if streams:
                self._show("call", upto, as_json(self._rest[:upto])[1:-1])
            return False
        end = at - 1 if mark != closes and self._rest[:at].endswith("\n") else at
        if streams:
            self._show("call", end, as_json(self._rest[:end])[1:-1])
            self._show("call", at + len(closes) - end, '"')
        else:
            self._show("call", at + len(closes), as_value(self._rest[:end], self._types))
        self._state = self._parts
        return True


def as_value(text: str, types: Sequence[str]) -> str:
    """An element's value as JSON: a text if it is none, or may be a text."""
    is_text = "string" in types and not ("null" in types and text == "null")
    return as_json(text) if is_text or not _is_json(text) else text.strip()


def types_of(properties: Any, key: str) -> tuple[str, ...]:
    """The types that the JSON schemas of parameters name for one of them."""
    schema = properties.get(key) if isinstance(properties, dict) else None
    if not isinstance(schema, dict):
        return ()
    values = schema.get("enum")
    is_text = isinstance(values, list) and all(isinstance(each, str) for each in values)
    named = schema.get("type", "string" if is_text else ())
    return (named,) if isinstance(named, str) else tuple(named) if isinstance(named, list) else ()


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=int)  # which refuses NaN and infinities
    except ValueError:
        return False
    return True
