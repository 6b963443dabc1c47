"""Secrets in texts and in names of files, found so that they are never stored.

Every pattern is linear: RE2 matches it, or a repetition cannot fail once it has begun, or is short. Keys and
tokens in their providers' formats are found by the rules of gitleaks, matched by RE2; docs/memory.md has the
share that each of the two kinds finds, and neither has the other's. Bare hexadecimal numbers do not count:
nearly all of them are hashes of commits and files. The editors' plugins have the same list of names of files
with secrets and little else.
"""

from __future__ import annotations

import base64
import fnmatch
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import chain
from typing import Any, NamedTuple

import re2

NAMES: dict[str, list[str]] = json.loads((files(__package__) / "known" / "names.json").read_text("utf-8"))
"""patterns in small letters: ``secret`` names, the ``harmless`` among them, those that
are ``always`` secret, and the name endings of ``copies``, which are as secret as their originals"""
COPIES = tuple(NAMES["copies"])
LONGEST = 1024
"""characters of a name; no file has a longer one"""

MAX_MEMORY = 4 << 20
"""bytes; the limit of the automaton of one rule"""

Span = tuple[int, int]

WINDOW = 2048
"""bytes searched at once, extended to the end of the line"""
MAX_WINDOW = 16 * 1024
"""bytes of a window without a line end; a secret across its end is seen in two halves"""
RUN = 512
"""bytes of a run without a space that are judged together"""
BASIC = re.compile(rb"[Bb]asic\s{1,4}([A-Za-z0-9+/_-]{8,4096}={0,2})")
BEARER = re.compile(rb"[Bb]earer\s{1,4}([\w.~+/=-]{16,4096})")
ASSIGNED = re.compile(
    rb"(?:passw(?:or)?d|pwd|passphrase|secret|token|credentials?|(?:api|access|secret|private)[_-]?key)"
    rb"[\"']?[ \t]{0,8}(?::=|=>|[=:])[ \t]{0,8}"
    rb"(?:([\"'])([^\"'\n]{1,4096})|([^\s\"'`(){}\[\],;<>]{1,4096})(?![(\[.<]))",
    re.IGNORECASE,
)
LONG = re.compile(rb"[A-Za-z0-9+/_-]{24,}={0,2}")
DIGITS, UPPER, LOWER = re.compile(rb"[0-9]+"), re.compile(rb"[A-Z]+"), re.compile(rb"[a-z]+")
WORD = re.compile(rb"[A-Z]?[a-z]{3,}|[A-Z]{4,}")
NAME = re.compile(rb"[A-Za-z_][A-Za-z_.]*|[\W\d_]*")
"""an identifier without digits, or no letters at all: not a password"""
PLACEHOLDER = re.compile(rb"[<${%*.]|your|example|changeme|xxx", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Return True if a file name, without endings of copies, is one of a file with secrets."""
    name = name.lower()
    while name.endswith(COPIES):
        name = name[: -max(len(end) for end in COPIES if name.endswith(end))]
    if len(name) > LONGEST or _is_one_of("always", name):
        return True
    return _is_one_of("secret", name) and not _is_one_of("harmless", name)


def _is_one_of(kind: str, name: str) -> bool:
    return _pattern(kind).match(name) is not None


@cache
def _pattern(kind: str) -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, NAMES[kind])))


class Rules(NamedTuple):
    """``of_keyword[i]``: the numbers of the rules with keyword ``i``; a rule needs one of its keywords."""

    rules: list[dict[str, Any]]
    keywords: re2.Set
    of_keyword: list[list[int]]


def provider_spans(text: bytes) -> Iterator[list[Span]]:
    """The (start, end) of texts that look like a provider's keys, rule by rule: a step takes less than a
    millisecond for a few kilobytes, and linear time for any text."""
    known = read_rules()
    found = known.keywords.Match(text) or ()
    for number in sorted({rule for keyword in found for rule in known.of_keyword[keyword]}):
        rule = known.rules[number]
        yield [
            span for span in _matches(number, text) if _entropy(text[slice(*span)]) >= rule.get("entropy", 0)
        ]


def _matches(number: int, text: bytes) -> Iterator[Span]:
    pattern, wanted = _compiled(number), read_rules().rules[number].get("group", 0)
    for match in pattern.finditer(text):
        # As in gitleaks: the secret is the rule's group, else the first group that matches anything.
        groups = range(1, pattern.groups + 1)
        group = wanted or next((each for each in groups if match.start(each) < match.end(each)), 0)
        yield match.span(group)


@cache
def read_rules() -> Rules:
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
def _compiled(number: int) -> Any:
    return _linear(read_rules().rules[number]["regex"].encode())


def _linear(pattern: bytes) -> Any:
    """Compile a pattern with RE2, which matches any text in linear time."""
    return re2.compile(pattern, _options())


def _options() -> re2.Options:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors, options.max_mem = False, MAX_MEMORY
    return options


def _entropy(secret: bytes) -> float:
    """Shannon's, in bits per byte."""
    counts = Counter(secret).values()
    return -sum(count / len(secret) * math.log2(count / len(secret)) for count in counts)


PEM = _linear(rb"(?s)-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[^-]{0,20}-----.*?(?:-----END[^\n]{0,60}|\z)")
KNOWN = _linear(
    rb"(?:\b|_)("
    rb"A(?:KIA|SIA|ROA|IDA|GPA|NPA)[A-Z0-9]{12,}"  # AWS
    rb"|AIza[\w-]{30,}"  # Google
    rb"|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"  # GitHub, GitLab
    rb"|xox[a-z]-[\w-]{10,}|xapp-[\w-]{10,}"  # Slack
    rb"|sk-[\w-]{20,}|[sr]k_(?:live|test)_\w{10,}"  # OpenAI, Anthropic, Stripe
    rb"|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{20,}|pypi-[\w-]{20,}"
    rb"|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"  # JSON web tokens
    rb")"
)
URL = _linear(
    # RE2 has no lookahead: a password may begin with digits, but not with a port (up to five) and a slash.
    rb"://[^\s/:]*:([^\s@\"<>0-9]%(any)b*|[0-9]{1,5}(?:[^\s@\"<>0-9/]%(any)b*)?|[0-9]{6}%(any)b*)@"
    rb"|://([^\s/:@'\"]{8,})@" % {b"any": rb"[^\s@\"<>]"}
)
"""user and password, or a token in their place"""


def secret_spans(text: bytes) -> Iterator[list[Span]]:
    """The (start, end) of texts that look like secrets, window by window: each step takes microseconds, or
    some milliseconds for a text made to take long."""
    yield [match.span() for match in PEM.finditer(text)]
    start = 0
    while start < len(text):
        end = text.find(b"\n", start + WINDOW, start + MAX_WINDOW) + 1 or start + MAX_WINDOW
        window = text[start:end]
        for found in chain(_spans(window), provider_spans(window)):
            yield [(start + a, start + b) for a, b in found]
        start = end


def _spans(text: bytes) -> Iterator[list[Span]]:
    yield [match.span(1) for match in KNOWN.finditer(text)]
    yield [
        match.span(1 if match[1] else 2)
        for match in URL.finditer(text)
        if match[1] or DIGITS.search(match[2])
    ]
    yield [match.span(1) for match in BASIC.finditer(text) if b":" in _decoded(match[1])]
    yield [match.span(1) for match in BEARER.finditer(text) if DIGITS.search(match[1])]
    yield [*_passwords(text)]
    for match in LONG.finditer(text):
        for first in range(*match.span(), RUN):
            is_random = _is_random(text[first : min(first + RUN, match.end())])
            yield [match.span()] if is_random else []
            if is_random:
                break


def _passwords(text: bytes) -> Iterator[Span]:
    for match in ASSIGNED.finditer(text):
        group = 2 if match[2] else 3
        if _is_password(match[group], quoted=group == 2):
            yield match.span(group)


def _decoded(value: bytes) -> bytes:
    """Decode base64, of the standard or the URL-safe alphabet; empty if ``value`` is malformed."""
    try:
        return base64.b64decode(
            value + b"=" * (-len(value) % 4), b"-_" if b"-" in value or b"_" in value else None
        )
    except ValueError:
        return b""


def _is_password(value: bytes, *, quoted: bool) -> bool:
    """Return True if a value assigned to a `password` or a `token` is one, not a name, call or blank."""
    if PLACEHOLDER.match(value):
        return False
    if quoted:
        return len(value) >= 4 and not value.isspace()
    return len(value) >= 6 and NAME.fullmatch(value) is None


def _is_random(run: bytes) -> bool:
    """Return True if upper case, lower case and digits alternate as in a random number, not as in words."""
    groups = [len(kind.findall(run)) for kind in (DIGITS, UPPER, LOWER)]
    words = sum(len(word) for word in WORD.findall(run))
    return min(groups) >= 2 and sum(groups) * 3 >= len(run) and words < 0.5 * len(run)
