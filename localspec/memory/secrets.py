"""Secrets in texts and in names of files, found so that they are never stored.

A secret is a value that is assigned to a name such as `password`, a part of an address, a token with a known
beginning, or a run of letters and digits as random as a key. Every pattern takes linear time: a repetition
cannot fail once it has begun, or is short. Bare hexadecimal numbers do not count: nearly all of them are
hashes of commits and files. The editors' plugins have the same list of names of files with secrets and little
else.
"""

from __future__ import annotations

import base64
import fnmatch
import json
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

NAMES: dict[str, list[str]] = json.loads((files(__package__) / "known" / "names.json").read_text("utf-8"))
"""patterns in small letters: ``secret`` names, the ``harmless`` among them, those that
are ``always`` secret, and the name endings of ``copies``, which are as secret as their originals"""
COPIES = tuple(NAMES["copies"])
LONGEST = 1024
"""characters of a name; no file has a longer one"""

Span = tuple[int, int]

WINDOW = 2048
"""bytes searched at once, extended to the end of the line"""
MAX_WINDOW = 16 * 1024
"""bytes of a window without a line end; a secret across its end is seen in two halves"""
PIECE = 512
"""bytes of a run that are judged together"""
BEGIN = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[^-]{0,20}-----")
URL = re.compile(rb"://(?:[^\s/:]{0,256}+:(?![0-9]{1,5}/)([^\s@\"<>]{1,128}+)@|([^\s/:@'\"]{8,256}+)@)")
"""user and password, which is not a port, or a token in their place"""
BASIC = re.compile(rb"[Bb]asic\s{1,4}([A-Za-z0-9+/_-]{8,4096}={0,2})")
BEARER = re.compile(rb"[Bb]earer\s{1,4}([\w.~+/=-]{16,4096})")
CURL = re.compile(rb"\s(?:-u|--user)[ =]{0,4}[\"']?[^\s:\"']{1,256}+:([^\s\"']{1,256})")
ASSIGNED = re.compile(
    rb"(?:passw(?:or)?d|pwd|passphrase|secret|token|credentials?|authorization"
    rb"|(?:api|access|secret|private)[_-]?key|([a-z0-9]_?key|client_?id))"
    rb"[\"']?(?::?[ \t]{1,4}\w{1,20})?[ \t]{0,8}(?:(,|>\s?)|:{1,3}=|=>|[?.]=|[=:])[ \t]{0,8}(?:token[ \t])?"
    rb"(?:([\"'`])([^\"'`\n]{1,4096})|([^\s\"'`(){}\[\],;<>]{1,4096})(?![(\[.<]))"
)
"""in small letters: a name, a type perhaps, and a value with or without quotes. The first two groups are
names and signs that mostly come with other values."""
UNSURE = 12
"""the least bytes of a secret after such a name or sign"""
RUN = re.compile(rb"[A-Za-z0-9+/_~-]{14,}={0,2}(?:\.[\w-]{14,})*")
KNOWN = re.compile(
    rb"(?:\b|_)(?:"
    rb"A(?:KIA|SIA|ROA|IDA|GPA|NPA|BIA|CCA)[A-Z0-9]{12}"  # AWS
    rb"|AIza[\w-]{30}"  # Google
    rb"|gh[pousr]_\w{20}|github_pat_\w{20}|gl[a-z]{2,6}-[\w-]{16}"  # GitHub, GitLab
    rb"|xox[a-z]-[\w-]{10}|xapp-[\w-]{10}"  # Slack
    rb"|sk-[\w-]{20}|[sr]k_(?:live|test|prod)_\w{10}"  # OpenAI, Anthropic, Stripe
    rb"|(?:hf|org)_[A-Za-z]{20}|npm_[A-Za-z0-9]{20}|pypi-[\w-]{20}"  # Hugging Face, npm, PyPI
    rb"|AGE-SECRET-KEY-|A3-[A-Z0-9]{6}-"  # age, 1Password
    rb"|eyJ[\w-]{8}"  # JSON web tokens
    rb"|(?!sha|md)[A-Za-z][A-Za-z0-9]{1,11}[_-][0-9a-f]{24}"
    rb")"
)
"""the beginnings of tokens, the last of hexadecimal ones of many kinds"""
DIGITS, UPPER, LOWER = re.compile(rb"[0-9]+"), re.compile(rb"[A-Z]+"), re.compile(rb"[a-z]+")
HEX = re.compile(rb"(?<![A-Za-z0-9])(?:0x)?(?:[0-9a-f]++|[0-9A-F]++)(?![A-Za-z0-9])")
TURN = re.compile(rb"[0-9](?=[A-Za-z])|[A-Za-z](?=[0-9])")
WORD = re.compile(rb"[A-Z]?[a-z]{3,}|[A-Z]{4,}")
NAME = re.compile(rb"[A-Za-z_][A-Za-z_.]*|[\W\d_]{0,15}|[\W_]*")
"""an identifier without digits, or no letters at all: not a password"""
PLACEHOLDER = re.compile(rb"[<${%*.]|your|example|changeme|xxx", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Return True if a file name, without endings of copies, is one of a file with secrets."""
    name = name.lower()
    while name.endswith(COPIES):
        name = name[: -max(len(end) for end in COPIES if name.endswith(end))]
    if len(name) > LONGEST or _pattern("always").match(name):
        return True
    return _pattern("secret").match(name) is not None and not _pattern("harmless").match(name)


@cache
def _pattern(kind: str) -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, NAMES[kind])))


def secret_spans(text: bytes) -> Iterator[list[Span]]:
    """The (start, end) of texts that look like secrets, window by window: each step takes microseconds, or
    some milliseconds for a text made to take long."""
    yield [*_private_keys(text)]
    start = 0
    while start < len(text):
        end = text.find(b"\n", start + WINDOW, start + MAX_WINDOW) + 1 or start + MAX_WINDOW
        for found in _spans(text[start:end]):
            yield [(start + a, start + b) for a, b in found]
        start = end


def _private_keys(text: bytes) -> Iterator[Span]:
    """The keys between their marks; one that does not end reaches to the text's end."""
    end = 0
    while match := BEGIN.search(text, end):
        mark = text.find(b"-----END", match.end())
        end = len(text) if mark < 0 else text.find(b"\n", mark) + 1 or len(text)
        yield match.start(), end


def _spans(text: bytes) -> Iterator[list[Span]]:
    yield [
        match.span(1 if match[1] else 2)
        for match in URL.finditer(text)
        if match[1] or DIGITS.search(match[2])
    ]
    yield [match.span(1) for match in BASIC.finditer(text) if b":" in _decode_base64(match[1])]
    yield [match.span(1) for match in BEARER.finditer(text) if DIGITS.search(match[1])]
    yield [match.span(1) for match in CURL.finditer(text) if _is_password(match[1], quoted=False)]
    yield [*_passwords(text)]
    for match in RUN.finditer(text):
        yield [match.span()] if _is_key(match[0]) else []


def _passwords(text: bytes) -> Iterator[Span]:
    for match in ASSIGNED.finditer(text.lower()):
        group = 4 if match[4] else 5
        value = text[slice(*match.span(group))]
        if _is_password(value, quoted=group == 4):
            is_sure = not match[1] and not match[2]
            if is_sure or (len(value) >= UNSURE and len(DIGITS.findall(value)) >= 2):
                yield match.span(group)


def _decode_base64(value: bytes) -> bytes:
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


def _is_key(run: bytes) -> bool:
    """Return True if a run of letters, digits and signs has the beginning of a token, or is random."""
    pieces = (part[at : at + PIECE] for part in run.split(b".") for at in range(0, len(part), PIECE))
    return KNOWN.search(run) is not None or any(map(_is_random, pieces))


def _is_random(run: bytes) -> bool:
    """Return True if upper case, lower case and digits, or letters and digits beyond hexadecimal numbers,
    alternate as in a random number, not as in words."""
    groups = [len(kind.findall(run)) for kind in (DIGITS, UPPER, LOWER)]
    words = sum(len(word) for word in WORD.findall(run))
    if len(run) >= 24 and min(groups) >= 2 and sum(groups) * 3 >= len(run) and words < 0.5 * len(run):
        return True
    return groups[0] >= 3 and len(TURN.findall(HEX.sub(b"", run))) >= max(5, len(run) / 4)
