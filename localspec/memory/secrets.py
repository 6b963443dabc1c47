"""What looks like a secret in a text, so that it is never stored.

Every pattern is linear: a repetition either cannot fail once it has begun, or is short. Bare hexadecimal
numbers are left alone: nearly all of them are hashes of commits and files.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

from localspec.memory.providers import provider_spans

WINDOW = 2048
"""bytes looked through at once, up to the end of the line"""
MAX_WINDOW = 16 * 1024
"""where no line ends, a secret on the seam goes in two halves"""

PEM = re.compile(
    rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[^-]{0,20}-----.*?(?:-----END[^\n]{0,60}|\Z)", re.DOTALL
)
KNOWN = re.compile(
    rb"(?<![A-Za-z0-9])(?:"
    rb"A(?:KIA|SIA|ROA|IDA|GPA|NPA)[A-Z0-9]{12,128}"  # AWS
    rb"|AIza[\w-]{30,128}"  # Google
    rb"|gh[pousr]_\w{20,255}|github_pat_\w{20,255}|glpat-[\w-]{16,128}"  # GitHub, GitLab
    rb"|xox[a-z]-[\w-]{10,255}|xapp-[\w-]{10,255}"  # Slack
    rb"|sk-[\w-]{20,255}|[sr]k_(?:live|test)_\w{10,255}"  # OpenAI, Anthropic, Stripe
    rb"|hf_[A-Za-z0-9]{20,128}|npm_[A-Za-z0-9]{20,128}|pypi-[\w-]{20,255}"
    rb"|eyJ[\w-]{8,4096}\.[\w-]{8,8192}(?:\.[\w-]{0,4096})?"  # JSON web tokens
    rb")"
)
URL = re.compile(rb"://[^\s/:]{0,256}:(?!\d{1,5}/)([^\s@\"<>]{1,512})@|://([^\s/:@'\"]{8,512})@")
"""user and password, or a token in their place; what stands behind a port is neither"""
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
"""an identifier without digits, or no letters at all: no password"""
PLACEHOLDER = re.compile(rb"[<${%*.]|your|example|changeme|xxx", re.IGNORECASE)


def secret_spans(text: bytes) -> Iterator[list[tuple[int, int]]]:
    """The (start, end) of what looks like secrets, window by window: each step takes microseconds."""
    yield [match.span() for match in PEM.finditer(text)]
    start = 0
    while start < len(text):
        end = text.find(b"\n", start + WINDOW, start + MAX_WINDOW) + 1 or start + MAX_WINDOW
        window = text[start:end]
        yield [(start + a, start + b) for a, b in _spans(window)]
        for found in provider_spans(window):
            yield [(start + a, start + b) for a, b in found]
        start = end


def _spans(text: bytes) -> Iterator[tuple[int, int]]:
    for match in KNOWN.finditer(text):
        yield match.span()
    yield from _credentials(text)
    for match in ASSIGNED.finditer(text):
        group = 2 if match[2] else 3
        if _is_password(match[group], quoted=group == 2):
            yield match.span(group)
    for match in LONG.finditer(text):
        if _is_random(match[0]):
            yield match.span()


def _credentials(text: bytes) -> Iterator[tuple[int, int]]:
    """What lets somebody in at an address: in it, or in a request's head."""
    for match in URL.finditer(text):
        if match[1] or DIGITS.search(match[2]):
            yield match.span(1 if match[1] else 2)
    for match in BASIC.finditer(text):
        if b":" in _decoded(match[1]):
            yield match.span(1)
    for match in BEARER.finditer(text):
        if DIGITS.search(match[1]):
            yield match.span(1)


def _decoded(value: bytes) -> bytes:
    """What base64 stands for; nothing where it is none."""
    try:
        return base64.b64decode(
            value + b"=" * (-len(value) % 4), b"-_" if b"-" in value or b"_" in value else None
        )
    except ValueError:
        return b""


def _is_password(value: bytes, *, quoted: bool) -> bool:
    """Whether what is assigned to a `password` or a `token` is one, and no name, call or blank."""
    if PLACEHOLDER.match(value):
        return False
    if quoted:
        return len(value) >= 4 and not value.isspace()
    return len(value) >= 6 and NAME.fullmatch(value) is None


def _is_random(run: bytes) -> bool:
    """Whether upper case, lower case and digits alternate as in a random number, not as in words."""
    groups = [len(kind.findall(run)) for kind in (DIGITS, UPPER, LOWER)]
    return min(groups) >= 2 and sum(groups) * 3 >= len(run) and _share_of_words(run) < 0.5


def _share_of_words(run: bytes) -> float:
    return sum(len(word) for word in WORD.findall(run)) / len(run)
