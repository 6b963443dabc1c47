"""Grammars of the options, and the tokens that they allow, on a vocabulary of merged tokens."""

from __future__ import annotations

import json
import random
import re
import threading
from functools import reduce
from typing import Any

import numpy as np
import pytest

from localspec.constraints.constraint import MOST_DIGITS, Constraint, Grammars, grammar_of, grammar_of_schema
from localspec.errors import InvalidOptions
from localspec.protocol.options import LONGEST_GRAMMAR, Options, parse_options
from tests.toy import END, ToyVocabulary

MERGED = ["ab", "abc", '{"', '":', ' "', '", "', '"}', "name", "na", "age", "12", "123", ": ", "true", "},"]


class Merged(ToyVocabulary):
    """The toy's vocabulary and tokens of several bytes, the longest of which is taken at each place."""

    size = ToyVocabulary.size + len(MERGED)

    def encode(self, text: str, *, special: bool) -> list[int]:
        tokens: list[int] = []
        while text:
            long = max((each for each in MERGED if text.startswith(each)), key=len, default="")
            tokens += [super().size + MERGED.index(long)] if long else text[0].encode()
            text = text[max(1, len(long)) :]
        return tokens

    def piece(self, token: int) -> bytes:
        own = ToyVocabulary.size
        return super().piece(token) if token < own else MERGED[token - own].encode()

    def text_of(self, token: int) -> bytes:
        return super().text_of(token) if token < ToyVocabulary.size else self.piece(token)


class Spaced(Merged):
    """Its tokenizer puts a space before every text, and one of its tokens is markup that no text spells."""

    marks = frozenset({Merged.size - 1})

    def encode(self, text: str, *, special: bool) -> list[int]:
        return super().encode(f" {text.replace(MERGED[-1], MERGED[-1][0])}", special=special)


VOCABULARY = Merged()
GRAMMARS, BYTES = Grammars(VOCABULARY), Grammars(ToyVocabulary())
RECORD = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"enum": [12, 123, 1]}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
KINDS: list[tuple[dict[str, Any], str]] = [
    ({"schema": RECORD}, r'\{"name": ".{0,12}", "age": (12|123|1)\}'),
    ({"regex": "^(ab|[0-9]{2})+$"}, "(ab|[0-9]{2})+"),
    ({"regex": "a/b|c\\$"}, "a/b|c[$]"),
    ({"choice": ["abc", 'na"me', "ab\n/é"]}, 'abc|na"me|ab\n/é'),
    ({"grammar": 'start: "ab" NUM\nNUM: /[1-3]+/'}, "ab[1-3]+"),
    ({"grammar": 'root ::= "ab" num\nnum ::= [1-3]+', "grammar_syntax": "gbnf"}, "ab[1-3]+"),
    ({"grammar": 'root ::= ("ab"{1,2} [1-3]?){2}', "grammar_syntax": "gbnf"}, "((ab){1,2}[1-3]?){2}"),
    (
        {"grammar": r'root ::= "\u00e9\U0001f432\u0022\\u00e9" [\u0062-\u0064]', "grammar_syntax": "gbnf"},
        r'é🐲"\\u00e9[b-d]',
    ),
]


def constraint_of(options: dict[str, Any]) -> Constraint:
    return GRAMMARS.constraint(str(grammar_of(Options(**options))))


def is_answer(grammar: str, text: bytes) -> bool:
    """True if the text is a complete answer."""
    constraint, tokens = BYTES.constraint(grammar), list(text)
    return constraint.prefix([*tokens, END]) > len(tokens) or (
        constraint.prefix(tokens) == len(tokens) and not constraint.mask_allowed(tokens).any()
    )


def text_of(tokens: list[int]) -> str:
    return b"".join(map(VOCABULARY.piece, tokens)).decode("utf-8", "replace")


@pytest.mark.parametrize(("options", "pattern"), KINDS)
def test_any_walk_gives_a_text_of_the_grammar(options: dict[str, Any], pattern: str) -> None:
    """Forced runs taken as a whole, drafts with wrong tokens, and looking ahead change no position."""
    dice = random.Random(0)
    for _ in range(60):
        plain, other, answer = constraint_of(options), constraint_of(options), list[int]()
        while not plain.ended and len(answer) < 200:
            mask = plain.mask_allowed(())
            token = int(dice.choice(np.flatnonzero(mask)))
            draft = [token, *(dice.randrange(VOCABULARY.size) for _ in range(3))]
            kept = other.prefix(draft)
            assert kept >= 1 and all(other.allows(t, draft[:i]) for i, t in enumerate(draft[:kept]))
            assert kept == len(draft) or END in draft or not other.allows(draft[kept], draft[:kept])
            assert np.array_equal(mask, other.mask_allowed(()))
            if token == END:
                break
            forced = other.find_forced(8)
            assert not forced or mask.sum() == 1
            for each in forced or [token]:
                assert plain.mask_allowed(()).sum() == 1 or not forced
                plain.accept(each)
                other.accept(each)
                answer.append(each)
        else:
            assert len(answer) < 200 and plain.allows(END, ())
        assert re.fullmatch(pattern, text_of(answer), re.DOTALL)
        if "schema" in options:
            json.loads(text_of(answer))


def test_nothing_follows_an_end_token_in_a_draft() -> None:
    constraint = constraint_of({"regex": "(ab)+"})
    constraint.accept(VOCABULARY.encode("ab", special=False)[0])
    for drafted in ([END], [END, END], [END, 97, END]):
        assert constraint.allows(END, drafted) and constraint.prefix(drafted) == 1
    assert not constraint.ended


def test_a_number_does_not_go_on_for_ever() -> None:
    """Unless nothing else is allowed. Drafts are cut where it ends, and looking ahead changes nothing."""
    zero, point, number = ord("0"), ord("."), constraint_of({"schema": {"type": "number"}})
    for token in (ord("1"), *[zero] * (MOST_DIGITS - 2)):
        number.accept(token)
    assert number.prefix([zero, zero]) == 1 and number.prefix([zero, point, zero]) == 3
    number.accept(zero)
    digits = [*b"0123456789", *VOCABULARY.encode("123", special=False)]
    assert not number.mask_allowed(())[digits].any() and number.allows(point, ()) and number.allows(END, ())
    long = constraint_of({"regex": f"[0-9]{{{MOST_DIGITS + 2}}}"})
    assert long.prefix([zero] * (MOST_DIGITS + 2)) == MOST_DIGITS + 2


def test_forced_tokens_have_the_bytes_of_the_grammar_and_its_markup() -> None:
    constraint = Grammars(Spaced()).constraint(f'start: "name{MERGED[-1]}abc"')
    assert [VOCABULARY.piece(token) for token in constraint.find_forced(9)] == [b"name", b"},", b"abc"]


OBJECT = {"properties": {"a": {"type": "integer"}}}
DEEP = reduce(lambda inner, _: {"items": inner}, range(5000), dict[str, Any]())
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"schema": {"properties": {"a/b": {"items": {"not": {}}}}}}, r'schema: Unimplemented keys: \["not"\]$'),
    ({"schema": {"pattern": "(?=a)"}}, "(?s)schema: .*look-around"),
    ({"schema": {"$defs": {"x": {"type": "strung"}}, "$ref": "#/$defs/x"}}, r"schema: .*strung$"),
    ({"schema": {"format": "regex"}}, "schema: Unknown format: regex$"),
    ({"schema": {"enum": ["x" * LONGEST_GRAMMAR]}}, "schema: it has"),
    ({"schema": DEEP}, "schema: it is nested too deeply"),
    ({"regex": "(a"}, 'cannot be used: .*invalid regex "[(]a"'),
    ({"schema": {"properties": {f"n{i}": {} for i in range(10_000)}}}, "schema: it has 10001 names"),
    ({"schema": {"items": {"const": ["a\x7f"]}}}, "^schema: a control character"),
    ({"schema": {"pattern": r"^[^\x00-\x1f]\x1b"}}, "^schema: a control character"),
    ({"schema": {"minProperties": 3, "required": ["a"]}}, "^schema: minProperties"),
    ({"schema": {"exclusiveMinimum": 1, "maximum": 1.5}}, "^schema: a whole number as an exclusive bound"),
    ({"schema": {"minimum": 1.5, "exclusiveMaximum": 10**400}}, "number out of range"),
    ({"grammar": "start: %json 5"}, "at 1.8.: .*schema must be an object"),
    ({"grammar": "root ::= (", "grammar_syntax": "gbnf"}, "grammar: it is not valid GBNF"),
    ({"grammar": "root ::= foo", "grammar_syntax": "gbnf"}, "it is not valid GBNF: Rule 'foo' not found"),
    ({"grammar": r'root ::= "\ud800"', "grammar_syntax": "gbnf"}, "it is not valid GBNF: .*surrogates"),
    ({"grammar": "root ::= " + "(" * 9999, "grammar_syntax": "gbnf"}, "grammar: it is not valid GBNF"),
]


INVALID: list[tuple[dict[str, Any], str, list[str]]] = [
    (
        {"properties": {"ab": {"type": "null"}}, "additionalProperties": {}},
        '{"ab": null, "c": 1}',
        ['{"a\\u0062": 1}'],
    ),
    ({"patternProperties": {"^é+$": {"type": "null"}}}, '{"é": null}', ['{"\\u00e9": 1}']),
    ({"format": "date"}, '"2024-02-29"', ['"2023-02-29"', '"1900-02-29"']),
    (
        {"format": "date-time"},
        '"2000-02-29T23:59:59.5Z"',
        ['"2100-02-29T23:59:59Z"', '"2024-02-28T22:00:60Z"'],
    ),
    ({"format": "time", "pattern": "Z$"}, '"23:59:59Z"', ['"12:00:60Z"', '"12:00:00+00:00"']),
    (
        {"format": "hostname"},
        '"a-b.ab--c.example"'.replace("ab--c", "abc--d"),
        ['"xn--x"', f'"{"a." * 127}a"'],
    ),
    ({"format": "email"}, f'"{"a" * 64}@b.c"', [f'"{"a" * 65}@b.c"', f'"a@{"b" * 64}"']),
    (
        {"properties": {"properties": {"properties": {"const": {"format": "time"}}}}},
        '{"properties": {"const": "12:00:00Z"}}',
        ['{"properties": {"const": "12:00:60Z"}}', '{"properties": {"a": 1}}'],
    ),
    ({"const": {"format": "date"}}, '{"format": "date"}', ["{}"]),
    ({"type": "string", "format": "password"}, '"x"', ["1"]),
    ({"type": "string", "maxLength": 2.0}, '"ab"', ['"abc"']),
    (
        {"allOf": [OBJECT, {"properties": {"b": {"$ref": "#/$defs/x"}}}], "$defs": {"x": OBJECT}},
        '{"a": 1, "b": {"a": 2}}',
        ['{"a": 1, "b": {"b": 2}}', '{"a": "1"}'],
    ),
]


@pytest.mark.parametrize(("schema", "valid", "invalid"), INVALID)
def test_an_invalid_text_is_no_answer(schema: dict[str, Any], valid: str, invalid: list[str]) -> None:
    """Found in the JSON-Schema test suite, or with its schemas."""

    grammar = grammar_of_schema(schema)
    assert [text for text in (valid, *invalid) if is_answer(grammar, text.encode())] == [valid]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_cannot_be_followed_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOptions, match=message):
        constraint_of(options)


def test_a_grammar_that_becomes_too_complex_is_the_clients_error() -> None:
    constraint = constraint_of({"grammar": 'start: A{1000000}\nA: "a"'})
    with pytest.raises(InvalidOptions, match="Too many items"):
        constraint.accept(ord("a"))


def test_a_draft_that_leads_to_a_position_too_complex_is_cut_before_it() -> None:
    constraint = constraint_of({"grammar": 'start: "bc" | A{1000000}\nA: "a"'})
    assert constraint.prefix([ord("a"), ord("a")]) == 1
    assert constraint.prefix([ord("b"), ord("c")]) == 2
    for token in b"bc":
        constraint.accept(token)
    assert constraint.ended


def test_constraints_exclude_each_other_and_replace_those_of_a_layer_below() -> None:
    with pytest.raises(InvalidOptions, match="regex and choice exclude each other"):
        parse_options({"regex": "a", "choice": ["b"]})
    below = Options(grammar='root ::= "a"', grammar_syntax="gbnf", k=2)
    assert Options(regex="a").over(below) == Options(regex="a", k=2)
    assert Options(seed=1).over(below).grammar_syntax == "gbnf"


@pytest.mark.parametrize(
    ("schema", "is_closed"),
    [
        ({**OBJECT, "required": ["a"]}, True),
        ({**OBJECT, "additionalProperties": True}, False),
        ({**OBJECT, "required": ["b"]}, False),
        ({"anyOf": [OBJECT]}, True),
        ({"anyOf": [OBJECT, {"additionalProperties": {}}]}, False),
        ({"allOf": [OBJECT]}, True),
        ({"allOf": [OBJECT, {"properties": {"c": {}}}]}, False),
        ({"allOf": [OBJECT, {"properties": {"b": {}}}]}, False),
        ({"allOf": [OBJECT, {"$ref": "#/$defs/any"}], "$defs": {"any": {"additionalProperties": {}}}}, False),
        ({"properties": {"a": {}}, "anyOf": [{"required": ["a"]}, {"properties": {"c": {}}}]}, False),
        ({"properties": {"a": {"allOf": [{"$ref": "#/$defs/x"}], "default": 1}}, "$defs": {"x": {}}}, True),
        ({"propertyNames": {"type": "string"}, "uniqueItems": False, **OBJECT}, True),
    ],
)
def test_objects_that_list_their_properties_have_no_others(schema: dict[str, Any], is_closed: bool) -> None:
    constraint = constraint_of({"schema": {"type": "object", **schema}})
    assert (constraint.prefix(VOCABULARY.encode('{"b', special=False)) < 2) == is_closed


def test_other_threads_run_while_a_long_forced_text_is_read() -> None:
    ticks, ended = 0, threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not ended.wait(0.001):
            ticks += 1

    thread = threading.Thread(target=tick)
    thread.start()
    constraint_of({"schema": {"const": "q" * 100_000}})
    ended.set()
    thread.join()
    assert ticks > 20
