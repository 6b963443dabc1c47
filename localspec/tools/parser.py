"""The incremental parser: from the text of a chat's answer to its answer, its thoughts and its tool calls."""

from __future__ import annotations

import json
import re
import secrets
import string
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from localspec.protocol.requests import CallBegun, Channel, ToolCall
from localspec.tools.families import (
    ALL,
    BARE,
    MOST_BLANK,
    MOST_CALLS,
    Form,
    as_json,
    count_undecided,
    match_pattern,
    trigger,
)

IDS = string.ascii_letters + string.digits
STEP = re.compile(r'\\.?|["{}\[\]]', re.DOTALL)
"""the characters of JSON by which the end of an object is found, and escaped ones"""
BARE_KEY = re.compile(rf"([{{,]\s*)({BARE.pattern})\s*:")


class AnswerPart(NamedTuple):
    """A part of the text: what it shows on a channel, None for markup, and the length of what it was made
    of, which is that of ``text`` unless it was translated."""

    channel: Channel | None
    text: str
    source: int
    call: CallBegun | None = None


Take = Callable[[int, str], bool | None]
"""takes a match by its end and name; False: waits for more text, None: it is no match"""
Options = Sequence[tuple[str, Take]]


class Parser:
    """Takes text in pieces of any size. What may become markup is held back, what looked like it and is not
    is text. Whitespace beside markup is part of it."""

    def __init__(self, form: Form) -> None:
        self._form, self._family = form, form.family
        self._rest = ""
        self._pieces: list[AnswerPart] = []
        self._texts: dict[Channel, list[str]] = {"answer": [], "thinking": []}
        self._calls: list[tuple[CallBegun, list[str]]] = []
        # A JSON object must follow, so that what only looks like a call is text.
        self._object = "" if self._family.tags[0] else "{"
        calls = self._heads(self._family.opens) if form.tools else []
        marks = [(mark, self._mark) for mark in self._family.marks]
        thought = [(form.thought[0], self._think)] if form.thought else []
        self._at_start: Options = [*calls, *thought, *marks]
        self._inside: Options = [each for each in (*calls, *marks) if each[0][0] in "<[`"]
        self._triggers = {trigger(pattern) for pattern, _ in self._inside}
        tails: Options = [(tail, self._end_call) for tail in self._family.tails]
        closing: Options = [(self._family.closes, self._mark)] if self._family.closes else []
        after: Options = [*self._heads(self._family.between), *closing]
        self._next = partial(self._take, after, self._mark)
        self._tail = partial(self._take, tails, self._end_call)
        self._parts = partial(self._take, [(self._family.tags[0], self._element), *tails], self._end_call)
        self._state: Callable[[], object] = self._thinking if form.opened else self._start
        self._fresh = form.opened
        """True behind markup, where whitespace is hidden"""
        self.full = False
        """True if one call more than possible has begun, at which the answer ends"""
        self._final = self._hides = self._quoted = False
        self._depth = self._skipped = self._keys = 0
        self._types: Any = ()

    def _heads(self, before: str) -> list[tuple[str, Take]]:
        return [(f"{before}{head}{self._object}", self._call) for head in self._family.heads]

    @property
    def plain(self) -> bool:
        return self._state == self._answer and not self._inside and not self._rest

    def join_texts(self, channel: Channel) -> str:
        return "".join(self._texts[channel])

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(ToolCall(begun.id, begun.name, "".join(texts)) for begun, texts in self._calls if texts)

    def feed(self, text: str) -> list[AnswerPart]:
        """The pieces that ``text`` makes certain."""
        self._rest += text
        while self._rest and self._state():
            pass
        pieces, self._pieces = self._pieces, []
        return pieces

    def finish(self, *, cut: bool = False) -> list[AnswerPart]:
        """The last pieces, at the end of the text. What was held back is text, or hidden if the text was
        ``cut``, unless it is one character or a fence, and behind no call."""
        self._final = True
        self._hides = cut and (bool(self._calls) or len(self._rest.strip().lstrip("`")) > 1)
        pieces = self.feed("")
        self._hide(len(self._rest))
        return [*pieces, *self.feed("")]

    def _show(self, channel: Channel, n: int, text: str | None = None) -> None:
        if self._hides and (channel != "call" or not n):
            return self._hide(n)
        shown = self._rest[:n] if text is None else text
        self._rest = self._rest[n:]
        if not (n or shown):
            return
        begun, texts = self._calls[-1] if channel == "call" else (None, self._texts[channel])
        texts.append(shown)
        self._pieces.append(AnswerPart(channel, shown, n, begun))

    def _hide(self, n: int) -> None:
        if n:
            self._pieces.append(AnswerPart(None, "", n))
            self._rest = self._rest[n:]

    def _hide_blank(self) -> bool:
        """Hide whitespace at the start of the rest; return True if more follows."""
        self._hide(len(self._rest) - len(self._rest.lstrip()))
        return bool(self._rest)

    def _before(self, at: int) -> int:
        """The end of the text before ``at``, without whitespace that may be part of markup there."""
        return max(len(self._rest[:at].rstrip()), at - MOST_BLANK)

    def _take(self, options: Options, other: Take) -> bool:
        """Take the longest option that the rest begins with, or ``other``; False if more text must decide."""
        found = [(*match, take) for pattern, take in options if (match := match_pattern(pattern, self._rest))]
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
        at = min(found, default=len(self._rest) - count_undecided(self._rest, self._triggers))
        self._show("answer", self._before(at) if self._inside else at)
        if not found:
            return False
        return self._take(self._inside, self._show_unmarked)

    def _show_unmarked(self, *_: object) -> bool:
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
        upto = at if at >= 0 else len(self._rest) - count_undecided(self._rest, (closes,))
        shown = self._before(upto)
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

    def _call(self, end: int, name: str) -> bool | None:
        if all(tool.name != name for tool in self._form.tools):
            return None
        if len(self._calls) == MOST_CALLS:
            self.full, self._state = True, lambda: self._hide(len(self._rest))
            return True
        end -= len(self._object)
        self._skipped, self._keys, self._quoted = end, 0, False
        if self._family.quote:
            self._state = partial(self._whole, end, name)
            return True
        self._begin(name)
        self._hide(end)
        self._skipped, self._state = 0, self._json if self._object else self._parts
        return True

    def _begin(self, name: str) -> None:
        id = "call_" + "".join(secrets.choice(IDS) for _ in range(9))
        self._calls.append((CallBegun(len(self._calls), id, name), []))

    def _end_call(self, end: int, _: str = "") -> bool:
        if self._object:
            self._hide(end)
        else:
            self._show("call", end, "}" if self._keys else "{}")
        self._state = self._next
        return True

    def _json(self) -> bool:
        mark = ""
        for found in STEP.finditer(self._rest, self._skipped):
            mark = found[0]
            if mark == '"':
                self._quoted = not self._quoted
            elif mark[0] != "\\" and not self._quoted:
                self._depth += 1 if mark in "{[" else -1
                if not self._depth:
                    self._show("call", found.end())
                    self._skipped, self._state = 0, self._tail
                    return True
        self._skipped = int(mark == "\\")  # the character behind it is still to come
        self._show("call", len(self._rest))
        return False

    def _whole(self, begins: int, name: str) -> bool:
        """Show a call with bare keys, once all of it has come; one that is none is text."""
        quote, tail = self._family.quote, self._family.tails[0]
        while (end := self._find((quote, tail))) >= 0:
            is_quote = self._rest.startswith(quote, end)
            if not is_quote and not self._quoted:
                break
            self._quoted ^= is_quote
            self._skipped = end + 1
        if end < 0 and not self._final:
            return False
        parts = self._rest[begins:end].split(quote)
        keyed = (BARE_KEY.sub(r'\1"\2":', part) for part in parts[::2])
        texts = [as_json(part) for part in parts[1::2]]
        arguments = "".join(each for pair in zip(keyed, [*texts, ""], strict=False) for each in pair)
        if end < 0 or not _is_json(arguments):
            return self._text() and self._show_unmarked()
        self._begin(name)
        self._show("call", end + len(tail), arguments)
        self._skipped, self._state = 0, self._next
        return True

    def _find(self, marks: Sequence[str]) -> int:
        """The place of the first of ``marks`` in the rest; -1 without one. Text is searched once."""
        found = [at for mark in marks if (at := self._rest.find(mark, self._skipped)) >= 0]
        if not found:
            self._skipped = max(self._skipped, len(self._rest) - max(map(len, marks)) + 1)
        return min(found, default=-1)

    def _element(self, end: int, key: str) -> bool:
        self._show("call", end, f"{', ' if self._keys else '{'}{as_json(key)}: ")
        self._keys += 1
        called = self._calls[-1][0].name
        schemas = (tool.parameters.get("properties") for tool in self._form.tools if tool.name == called)
        self._types = types_of(next(schemas, None), key)
        if self._types == ("string",):
            self._show("call", 0, '"')
        self._state = self._value
        return True

    def _value(self) -> bool:
        closes, streams = self._family.tags[1], self._types == ("string",)
        end = self._find((closes,))
        if end < 0:
            if streams:
                upto = len(self._rest) - count_undecided(self._rest, (closes,))
                self._show("call", upto, as_json(self._rest[:upto])[1:-1])
                self._skipped = 0
            return False
        value = as_value(self._rest[:end], self._types)
        self._show("call", end + len(closes), value[1:] if streams else value)
        self._skipped, self._state = 0, self._parts
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
