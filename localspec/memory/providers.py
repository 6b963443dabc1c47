"""Keys and tokens in their providers' formats, found by the rules of gitleaks, matched by RE2."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import re2

MAX_MEMORY = 4 << 20
"""bytes; the limit of the automaton of one rule"""

Span = tuple[int, int]


class Rules(NamedTuple):
    """``of_keyword[i]``: the numbers of the rules with keyword ``i``; a rule needs one of its keywords."""

    rules: list[dict[str, Any]]
    keywords: re2.Set
    of_keyword: list[list[int]]


def provider_spans(text: bytes) -> Iterator[list[Span]]:
    """The (start, end) of texts that look like a provider's keys, rule by rule: a step takes less than a
    millisecond for a few kilobytes, and linear time for any text."""
    known = _rules()
    found = known.keywords.Match(text) or ()
    for number in sorted({rule for keyword in found for rule in known.of_keyword[keyword]}):
        rule = known.rules[number]
        yield [
            span for span in _matches(number, text) if _entropy(text[slice(*span)]) >= rule.get("entropy", 0)
        ]


def load() -> None:
    """Read the rules, which takes some 0.1 s the first time."""
    _rules()


def is_loaded() -> bool:
    return _rules.cache_info().currsize > 0


def _matches(number: int, text: bytes) -> Iterator[Span]:
    pattern, wanted = _pattern(number), _rules().rules[number].get("group", 0)
    for match in pattern.finditer(text):
        # As in gitleaks: the secret is the rule's group, else the first group that matches anything.
        groups = range(1, pattern.groups + 1)
        group = wanted or next((each for each in groups if match.start(each) < match.end(each)), 0)
        yield match.span(group)


@cache
def _rules() -> Rules:
    rules = json.loads((files(__package__) / "known" / "gitleaks.json").read_text("utf-8"))["rules"]
    keywords = sorted({keyword for rule in rules for keyword in rule["keywords"]})
    options = _options()
    options.case_sensitive = False
    options.max_mem = 4 * MAX_MEMORY
    found = re2.Set.SearchSet(options)
    for keyword in keywords:
        found.Add(re2.escape(keyword).encode())
    found.Compile()
    of_keyword = [[n for n, rule in enumerate(rules) if each in rule["keywords"]] for each in keywords]
    return Rules(rules, found, of_keyword)


@cache
def _pattern(number: int) -> Any:
    return re2.compile(_rules().rules[number]["regex"].encode(), _options())


def _options() -> re2.Options:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors, options.max_mem = False, MAX_MEMORY
    return options


def _entropy(secret: bytes) -> float:
    """Shannon's, in bits per byte."""
    counts = Counter(secret).values()
    return -sum(count / len(secret) * math.log2(count / len(secret)) for count in counts)
