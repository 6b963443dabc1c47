"""From a request's options to a grammar, and the tokens that it allows, position by position.

The grammar is in Lark as llguidance reads it. JSON has one way of writing a value, with ``", "`` and ``": "``
between its parts and no other spaces: most of a text is then forced. What the library does not support is an
error; nothing is left out silently.

Where the grammar leaves one continuation, a run of tokens is forced: the tokenizer's own for these bytes.
Only the run's next token is allowed then, so that the text is the same whether the run is taken as a whole or
chosen token by token. A run is found at the first position that has one and kept to its end: the same tokens
before a position always give the same run.
"""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from itertools import chain, takewhile
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper, regex_to_lark
from llguidance.gbnf_to_lark import ASTNode, GrammarParser, Position, RepetitionNode, resolve
from numpy.typing import NDArray

from localspec.backends.base import ModelVocabulary
from localspec.child import limit_time, serve
from localspec.constraints.trial import LIMITS
from localspec.errors import InvalidOptions
from localspec.protocol.options import LONGEST_GRAMMAR, Options

LAYOUT = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "json_allowed_escapes": 'nrbtf\\"',
}
"""of JSON; without ``\\u`` there is one way to write a character, and a name cannot be given in another"""
HEADER = "%llguidance {}\n"
LONGEST_GBNF = 1 << 14
"""characters of a grammar in GBNF, which is converted by Python code"""
GBNF_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
MOST_NAMES = 10_000
"""keys of all objects in a schema; 4,000 properties of one object take the library a second"""
OWN = frozenset(("properties", "required"))
OPEN = frozenset(("patternProperties", "propertyNames", "additionalProperties", "unevaluatedProperties"))
"""keys of schemas that say which properties there are besides the listed ones"""
JOINED = frozenset(("anyOf", "oneOf", "$ref"))
"""keys of schemas that hold, each as a whole, for the same value; those in allOf do one by one"""
BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
MAPS = ("properties", "patternProperties", "definitions", "$defs")
"""keys of schemas whose values are schemas by names"""
VALUES = ("const", "enum", "default", "examples")
"""keys of schemas whose values are no schemas"""
IDLE: dict[str, tuple[Any, ...]] = {
    "propertyNames": ({"type": "string"}, {}, True),
    "uniqueItems": (False,),
    "unevaluatedProperties": (True, {}),
    "unevaluatedItems": (True, {}),
    **dict.fromkeys(("dependencies", "dependentRequired", "dependentSchemas"), ({},)),
}
"""values of keys that the library refuses, though they change nothing"""
FORMATS = re.compile(
    "date|time|date-time|duration|(idn-)?(email|hostname)|ipv[46]|[ui]ri(-reference)?|uri-template|uuid"
    "|(relative-)?json-pointer|regex"
)
"""those of JSON schema; all others are annotations"""
SET = re.compile(r"\\\\|\[(?>\\(?:x..|u....|.)|[^\]\\]){2,}+\]?|(\\.)", re.DOTALL)
"""an escaped backslash, a class of several characters, or another escape"""
CONTROL = re.compile(r"[\0-\x07\x0b\x0e-\x1f\x7f]|\\(u00|x)(0[0-7bef]|1.|7f)|\\[0cv]", re.IGNORECASE)
LEAP = r"([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
DATE = f"^({LEAP}-02-29|[0-9]{{4}}-(02-([01]|2[0-8])|0[^2]|1))"
LABEL = "([^.]{1,3}|[^.]{2}([^.-]|-[^.-])[^.]*)"
NARROW: dict[str, dict[str, Any]] = {
    "date": {"pattern": DATE},
    "date-time": {"pattern": f"{DATE}[^tT]*[tT].{{6}}[0-5]"},
    "time": {"pattern": "^.{6}[0-5]"},
    "hostname": {"pattern": rf"^{LABEL}(\.{LABEL})*$", "maxLength": 253},
    "email": {"pattern": r"^[^@]{1,64}@([^.]{1,63}\.)*[^.]{1,63}$", "maxLength": 254},
}
"""The library's formats let other things through: 29 February in all years, leap seconds at any time, names
that only seem to be ``xn--``, parts that are too long."""
ADDED = re.compile(r"^at 2\(8\): |\n *\d+ \| .*|\n<non-verbose/>.*", re.DOTALL)
"""in the library's messages: the place of an option's text in its grammar, the grammar, the parser's state"""


def grammar_of(options: Options) -> str | None:
    """Return the grammar of the options' constraint; None without one. Raises :class:`InvalidOptions`."""
    if options.schema is not None:
        return grammar_of_schema(options.schema)
    if options.regex is not None:
        return f"{HEADER}start: /{regex_to_lark(_strip_anchors(options.regex), use_ascii='')}/"
    if options.choice is not None:
        return f"{HEADER}start: {' | '.join(map(json.dumps, options.choice))}"
    if options.grammar is not None and options.grammar_syntax == "gbnf":
        return _from_gbnf(options.grammar)
    return options.grammar


def grammar_of_schema(schema: dict[str, Any]) -> str:
    """Return the grammar of a JSON schema. Raises :class:`InvalidOptions` if it is too large, or of a kind
    that the library does not follow, though it takes it."""
    try:
        said = json.dumps(schema)
    except RecursionError:
        raise InvalidOptions("schema: it is nested too deeply", "Send a flatter schema.") from None
    sizes = (("characters", len(said), LONGEST_GRAMMAR), ("names", said.count('": '), MOST_NAMES))
    for what, number, most in sizes:
        if number > most:
            message = f"schema: it has {number} {what}, {most} are possible"
            raise InvalidOptions(message, "Send a smaller schema.")
    # The library refuses 5.0 as a length; some clients write all numbers with a point.
    whole = json.loads(said, parse_float=lambda n: int(n[:-2]) if n.endswith(".0") else float(n))
    parts = list(_parts(whole))
    for part in parts:
        if why := _find_unsupported(part):
            raise InvalidOptions(f"schema: {why}", "Leave that out, or replace it.")
        _mend(part)
    close_objects(whole, parts)
    return f"{HEADER}start: %json {json.dumps({**whole, 'x-guidance': LAYOUT})}"


def check_form(options: Options, longest: float = math.inf) -> None:
    """Raise :class:`InvalidOptions` for a form that is not valid for any model, unless its grammar has more
    than ``longest`` characters."""
    grammar = grammar_of(options) or ""
    if len(grammar) <= longest and (fault := LLMatcher.validate_grammar(grammar)):
        raise refusal(fault)


def _parts(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schemas in a schema, itself among them."""
    left: list[Any] = [schema]
    while left:
        if not isinstance(part := left.pop(), dict):
            continue
        yield part
        for key, value in part.items():
            if key in MAPS and isinstance(value, dict):
                left += value.values()
            elif key not in VALUES:
                left += value if isinstance(value, list) else [value]


def close_objects(whole: dict[str, Any], parts: Sequence[dict[str, Any]]) -> None:
    """Close the objects among the ``parts`` of the schema ``whole`` that list their properties and do not
    mention others, as llama.cpp does: models go on with properties of their own. Those that hold together
    with others for one value, by ``allOf`` or as keys beside each other, stay open."""
    combined = _find_combined(whole, parts)
    for part in parts:
        listed = part.get("properties")
        is_listing = isinstance(listed, dict) and not OPEN & part.keys() and id(part) not in combined
        if is_listing and listed and set(map(str, _list(part, "required"))) <= listed.keys():
            part["additionalProperties"] = False


def _find_combined(whole: dict[str, Any], parts: Sequence[dict[str, Any]]) -> set[int]:
    """Return the ids of the schemas that hold for the same values as others, alternatives among them."""
    found, left = set[int](), list[Any]()
    for part in parts:
        if bool(OWN & part.keys()) + len(_list(part, "allOf")) + len(JOINED & part.keys()) > 1:
            left.append(part)
    while left:
        if not isinstance(each := left.pop(), dict) or id(each) in found:
            continue
        found.add(id(each))
        left += chain(*(_list(each, key) for key in ("allOf", "anyOf", "oneOf")))
        if "$ref" in each:
            left.append(_find_target(whole, str(each["$ref"])))
    return found


def _find_target(whole: dict[str, Any], reference: str) -> Any:
    start, *keys = unquote(reference).split("/")
    target: Any = whole if start == "#" else None
    for key in keys:
        target = target.get(key.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
    return target


def _list(part: dict[str, Any], key: str) -> list[Any]:
    return value if isinstance(value := part.get(key), list) else []


def _find_unsupported(part: dict[str, Any]) -> str | None:
    """Return what the library takes but does not follow; None without such."""
    patterns, least, needed = (part.get(key) for key in ("patternProperties", "minProperties", "required"))
    texts = [SET.sub(r"\1", str(each)) for each in (part.get("pattern"), *_names(patterns))]
    texts += [json.dumps(part.get(key)).replace(r"\\", "") for key in ("const", "enum")]
    if any(map(CONTROL.search, texts)):
        return "a control character in const, enum or pattern"
    if isinstance(least, int) and least > len(_names(needed)) + 1:
        return "minProperties of several names that are not required: one could be given twice"
    bounds = {key: part[key] for key in BOUNDS if type(part.get(key)) in (int, float)}
    whole = any(key.startswith("exclusive") and value % 1 == 0 for key, value in bounds.items())
    if whole and min(bounds.values()) < max(bounds.values()) < min(bounds.values()) + 1:
        return "a whole number as an exclusive bound less than 1 from the other bound"
    return None


def _names(value: Any) -> list[Any]:
    return list(value) if isinstance(value, dict | list) else []


def _mend(part: dict[str, Any]) -> None:
    """Take out what changes nothing, and mend what the library takes for more than it is."""
    for key, values in IDLE.items():
        if any(part.get(key) is value or part.get(key) == value != 0 for value in values):
            del part[key]
    if isinstance(format := part.get("format"), str) and not FORMATS.fullmatch(format):
        del part["format"]
    limit = NARROW.get(str(part.get("format")))
    if limit and isinstance(both := part.setdefault("allOf", []), list):
        both.append(limit)


def _strip_anchors(regex: str) -> str:
    """The expression without the anchors around it: it always matches a whole answer."""
    regex = regex.removeprefix("^")
    escaped = (len(regex) - len(regex.rstrip("$").rstrip("\\")) - 1) % 2
    return regex if escaped else regex.removesuffix("$")


class _Repetition(RepetitionNode):
    """A repetition in brackets: the library writes (x{1,2}){3} as x{1,2}{3}, which it refuses."""

    def is_atomic(self) -> bool:
        return False


class _GbnfParser(GrammarParser):
    def _parse_repetition(self, pos: Position, nodes: list[ASTNode]) -> Position:
        pos = super()._parse_repetition(pos, nodes)
        if nodes and isinstance(node := nodes[-1], RepetitionNode):
            nodes[-1] = _Repetition(node.node, node.min_times, node.max_times)
        return pos


def _from_gbnf(text: str) -> str:
    if len(text) > LONGEST_GBNF:
        message = f"grammar: it has {len(text)} characters, {LONGEST_GBNF} are possible in GBNF"
        raise InvalidOptions(message, "Send a shorter grammar, or one in Lark's syntax.")
    try:
        rules = _GbnfParser().parse(GBNF_ESCAPE.sub(_decode_escape, text))
        resolve(rules)
        lark = HEADER + "\n".join(map(str, rules.values()))
        lark.encode()  # an escape can name half of a character
    except Exception as error:
        # Of many kinds: for a rule that is missing, plain ones.
        raise InvalidOptions(f"grammar: it is not valid GBNF: {error}", "Correct it.") from None
    return lark


def _decode_escape(escape: re.Match[str]) -> str:
    """The character of an escape by number, which the library would write with fewer digits than it reads."""
    if len(escape[0]) == 2:
        return escape[0]
    code = int(escape[1][1:], 16)
    return chr(code) if code > 127 else f"\\x{code:02x}"


def refusal(message: str) -> InvalidOptions:
    """Return the error for a form that the library refuses with ``message``."""
    what = f"the answer's form cannot be used: {ADDED.sub('', message).strip()}"
    return InvalidOptions(what, "Correct it, simplify it, or leave out the part that is named.")


BEGIN = 'Begin it in that form (JSON with ", " and ": " between its parts), or leave the beginning out.'
KEPT, KEPT_S = 32, 2.0
"""compiled grammars that are kept, and the seconds that they took to compile: a second makes up to 120 MB"""
Attempt = Callable[[str], None]
"""raises an error for a grammar that takes too much to compile"""
LONGEST_RUN = 4096
"""bytes of forced text that are tokenized at once, for all to wait no longer"""
LEAD = "\x02"
"""stands before a text, and is no part of another token, where a tokenizer puts a space before all texts"""

DIGITS, MOST_DIGITS = b"0123456789", 256
"""so many in a row at most, where something else is allowed: models add zeros until the context is full"""


class _Tokens:
    """A vocabulary as the library reads it. Markup that is no control token, such as ``<tool_call>``, is one
    token also where it is forced."""

    def __init__(self, vocabulary: ModelVocabulary) -> None:
        self._encode = partial(vocabulary.encode, special=False)
        adds_space = b"".join(map(vocabulary.piece, self._encode("a"))) != b"a"
        self._lead = LEAD if adds_space else ""
        self._skipped = len(self._encode(LEAD)) if adds_space else 0
        special = vocabulary.special_tokens
        marks = {vocabulary.text_of(mark).decode(): mark for mark in vocabulary.marks - special}
        self._marks = marks
        self._parts = re.compile(f"({'|'.join(map(re.escape, marks))})") if marks else None
        read = (vocabulary.text_of if t in special else vocabulary.piece for t in range(vocabulary.size))
        self.tokens = [of(token) for token, of in enumerate(read)]
        self.special_token_ids = sorted(special)
        self.bos_token_id, self.eos_token_id = vocabulary.bos, min(vocabulary.end_tokens)

    def __call__(self, text: bytes) -> list[int]:
        return self.encode(text[:LONGEST_RUN].decode("utf-8", "ignore"))

    def encode(self, text: str) -> list[int]:
        parts = [text] if self._parts is None else self._parts.split(text)
        return [token for part in parts if part for token in self._tokens_of(part)]

    def _tokens_of(self, part: str) -> list[int]:
        mark = self._marks.get(part)
        return self._encode(self._lead + part)[self._skipped :] if mark is None else [mark]


class Grammars:
    """Compiles grammars for one vocabulary, and keeps the newest. Any thread may compile. The first call also
    reads the vocabulary: 0.6 s for 152,000 tokens, of which the library takes 0.3 s without releasing
    Python's lock. A schema takes about 1 ms, one of 4,000 names 1 s."""

    def __init__(self, vocabulary: ModelVocabulary) -> None:
        self.vocabulary = vocabulary
        self._kept: dict[str, tuple[LLMatcher, float]] = {}
        """the newest grammars and the seconds that they took, those used last at the end"""
        self._lock = threading.Lock()

    @cached_property
    def tokens(self) -> _Tokens:
        return _Tokens(self.vocabulary)

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        ends = sorted(self.vocabulary.end_tokens)
        if not ends:
            message = "the model has no end token: a constrained answer could not end"
            raise InvalidOptions(message, "Choose another model.")
        return LLTokenizer(TokenizerWrapper(self.tokens), self.vocabulary.size, ends)

    @cached_property
    def others(self) -> int:
        """The bit mask of the tokens that do not begin with a digit."""
        others = [text[:1] not in DIGITS or not text for text in self.tokens.tokens]
        return int.from_bytes(np.packbits(others, bitorder="little").tobytes(), "little")

    def _compile(self, grammar: str, attempt: Attempt) -> LLMatcher:
        with self._lock:
            kept = self._kept.pop(grammar, None)
        if kept is None:
            attempt(grammar)
            started = time.thread_time()
            matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=LIMITS)
            matcher.compute_bitmask()  # a grammar can be too complex from its beginning on
            if matcher.is_error():
                raise refusal(matcher.get_error())
            kept = matcher, time.thread_time() - started
        with self._lock:
            self._kept[grammar] = kept
            while len(self._kept) > KEPT or sum(seconds for _, seconds in self._kept.values()) > KEPT_S:
                del self._kept[next(iter(self._kept))]
        return kept[0]

    def constraint(
        self, grammar: str, begun: str = "", attempt: Attempt = lambda grammar: None
    ) -> Constraint:
        """Return the constraint of one answer, or of what follows its beginning ``begun``; ``attempt`` is
        called before a grammar is compiled. Raises :class:`InvalidOptions` for a grammar that is not valid,
        too large, or of a kind that the library does not support, and for a beginning that it does not
        allow."""
        with self._lock:
            _ = self._tokenizer
        matcher = self._compile(grammar, attempt)
        if begun:
            matcher = matcher.deep_copy()
            if not matcher.consume_tokens(self.tokens.encode(begun)):
                raise InvalidOptions("the beginning of the answer does not match its form", BEGIN)
        return Constraint(matcher, self)


class _Position(NamedTuple):
    """The continuations: token ``at`` of a forced ``run``, or without one those of the bit mask ``bits``;
    ``ended``: the grammar allows nothing more; ``digits``: the number of those just before."""

    run: list[int]
    at: int
    bits: bytes
    ended: bool
    digits: int

    @property
    def forced(self) -> int | None:
        return self.run[self.at] if self.run else None

    def allows(self, token: int) -> bool:
        return token == self.forced if self.run else bool(self.bits[token >> 3] >> (token & 7) & 1)


class Constraint:
    """The grammar's state in one answer. ``drafted`` in its methods are tokens that follow the accepted ones,
    all of them allowed. Its methods raise :class:`InvalidOptions` if the grammar is too complex at a
    position."""

    def __init__(self, matcher: LLMatcher, grammars: Grammars) -> None:
        self._compiled, self._matcher = matcher, matcher.deep_copy()
        self._size, self._ends = grammars.vocabulary.size, grammars.vocabulary.end_tokens
        self._grammars, self._texts = grammars, grammars.tokens.tokens
        self._accepted: list[int] = []
        self._ahead: list[int] = []
        """tokens beyond the accepted ones that the matcher has consumed"""
        self._positions = [self._look([], 0, 0)]
        """those after the accepted tokens, and after each token of ``_ahead``"""

    @property
    def ended(self) -> bool:
        """True if the answer is complete, and nothing may follow it."""
        return self._positions[0].ended

    def mask_allowed(self, drafted: Sequence[int]) -> NDArray[np.bool_]:
        """Return a mask of the tokens allowed after ``drafted``, shape (vocabulary,)."""
        position = self._at(drafted)
        if position.run:
            mask = np.zeros(self._size, dtype=np.bool_)
            mask[position.forced] = True
            return mask
        bits = np.frombuffer(position.bits, dtype=np.uint8)
        return np.unpackbits(bits, count=self._size, bitorder="little").view(np.bool_)

    def allows(self, token: int, drafted: Sequence[int]) -> bool:
        """True if ``token`` is allowed after ``drafted``."""
        return self._at(drafted).allows(token)

    def only(self, drafted: Sequence[int]) -> int | None:
        """Return the token that is forced after ``drafted``; None if there is a choice."""
        return self._at(drafted).forced

    def prefix(self, draft: Sequence[int]) -> int:
        """Return how many tokens of a draft are allowed, one after the other; none follows an end token, nor
        leads to a position that is too complex: the target may never go there."""
        for i, token in enumerate(draft):
            if not self._at(draft[:i]).allows(token):
                return i
            if token in self._ends:
                return i + 1
            try:
                self._at(draft[: i + 1])
            except InvalidOptions:
                return i
        return len(draft)

    def find_forced(self, most: int) -> list[int]:
        """Return the forced tokens after the accepted ones, at most ``most``."""
        n = 0
        while n < most and (token := self._positions[n].forced) is not None:
            if self._ahead[n : n + 1] != [token]:
                self._rewind(n)
                self._consume(token)
            n += 1
        return self._ahead[:n]

    def accept(self, token: int) -> None:
        """Append an allowed token to the answer."""
        if self._ahead[:1] != [token]:
            self._rewind(0)
            self._consume(token)
        self._accepted.append(token)
        del self._positions[0], self._ahead[0]

    def _at(self, drafted: Sequence[int]) -> _Position:
        """Return the position after ``drafted``, or before an end token in it, behind which nothing follows;
        what the matcher has consumed of it is not repeated."""
        known = list(takewhile(lambda token: token not in self._ends, drafted))
        if self._ahead[: len(known)] == known:
            return self._positions[len(known)]
        shared = next(i for i, token in enumerate(known) if self._ahead[i : i + 1] != [token])
        self._rewind(shared)
        for token in known[shared:]:
            self._consume(token)
        return self._positions[-1]

    def _rewind(self, n: int) -> None:
        """Take back all tokens beyond the accepted ones but the first ``n``."""
        if n < len(self._ahead):
            self._matcher.rollback(len(self._ahead) - n)
            del self._ahead[n:], self._positions[n + 1 :]

    def _consume(self, token: int) -> None:
        last = self._positions[-1]
        self._matcher.consume_token(token)
        try:
            self._positions.append(self._look(last.run, last.at + 1, self._digits(last.digits, token)))
        except InvalidOptions:  # a matcher does not leave this state
            self._matcher = self._compiled.deep_copy()
            self._matcher.consume_tokens([*self._accepted, *self._ahead])
            raise
        self._ahead.append(token)

    def _digits(self, before: int, token: int) -> int:
        text = self._texts[token]
        other = text.rstrip(DIGITS)
        return len(text) - len(other) + (0 if other else before)

    def _look(self, run: list[int], at: int, digits: int) -> _Position:
        """Return the matcher's position, at token ``at`` of the run that led to it, behind ``digits``."""
        matcher, bits = self._matcher, b""
        if at >= len(run):
            # The mask first: the library then goes through a forced text without holding Python's lock.
            bits = matcher.compute_bitmask()
            run, at = matcher.compute_ff_tokens(), 0
        if matcher.is_error():
            raise refusal(matcher.get_error())
        if digits >= MOST_DIGITS and not run:
            left = int.from_bytes(bits, "little") & self._grammars.others
            bits = left.to_bytes(len(bits), "little") if left else bits
        return _Position(run, at, bits, matcher.is_stopped(), digits)


def try_form(work: tuple[bytes, float]) -> bytes:
    """Return the error of the form in some options, both as JSON; empty for one that is valid: for a child of
    the daemon, before a model is loaded."""
    options, seconds = work
    limit_time(seconds)
    try:
        check_form(msgspec.json.decode(options, type=Options))
    except InvalidOptions as error:
        return msgspec.json.encode(error.as_dict())
    return b""


if __name__ == "__main__":
    serve(try_form)
