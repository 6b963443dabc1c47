"""The texts that are learnt: files of a directory, turns of chats, and the n-grams of both, without secrets.

Of a directory these are the text files that git would track, small and readable. N-grams are those of a
text's tokens, computed in steps of well under a millisecond.

Secrets are found in texts and by names of files, so that they are never stored. Every pattern is linear: RE2
matches it, or a repetition cannot fail once it has begun, or is short. Keys and tokens in their providers'
formats are found by the rules of gitleaks, matched by RE2; docs/memory.md has the share that each of the two
kinds finds, and neither has the other's. Bare hexadecimal numbers do not count: nearly all
of them are hashes of commits and files. The editors' plugins have the same list of names of files with
secrets and little else.
"""

from __future__ import annotations

import base64
import fnmatch
import json
import math
import os
import re
import stat
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from itertools import accumulate, chain, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import re2
from numpy.typing import NDArray

from localspec.errors import InvalidOptions
from localspec.home import is_gits_own, read_regular, repository_of
from localspec.memory import sources
from localspec.memory.sources import apart
from localspec.memory.table import ORDERS, Words, hashes_in

NAMES: dict[str, list[str]] = json.loads((files(__package__) / "known" / "names.json").read_text("utf-8"))
"""patterns in small letters: ``secret`` names, the ``harmless`` among them, those that
are ``always`` secret, and the name endings of ``copies``, which are as secret as their originals"""
COPIES = tuple(NAMES["copies"])
LONGEST = 1024
"""characters of a name; no file has a longer one"""


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


def _matches(number: int, text: bytes) -> Iterator[Span]:
    pattern, wanted = _compiled(number), _rules().rules[number].get("group", 0)
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
def _compiled(number: int) -> Any:
    return _linear(_rules().rules[number]["regex"].encode())


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


WINDOW = 2048
"""bytes searched at once, extended to the end of the line"""
MAX_WINDOW = 16 * 1024
"""bytes of a window without a line end; a secret across its end is seen in two halves"""
RUN = 512
"""bytes of a run without a space that are judged together"""


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


STEP = 64
"""tokens per step"""
PIECES = 1024


class Lesson(NamedTuple):
    """A text to learn."""

    tokens: Sequence[int]
    """not to be changed afterwards"""
    workspace: str | None
    """the path of the workspace whose table learns it; None: the user-wide table"""
    source: str
    """the origin of the text, such as ``chat:<session>``, ``run`` or ``file:<path>``"""
    earlier: int = 0
    """tokens of earlier texts before it, which are not learnt again; they show which others are secrets"""


class Grams(NamedTuple):
    """The n-grams of one order: ``tokens[i]`` followed the n tokens of ``hashes[i]``."""

    order: int
    hashes: Words
    tokens: Words


def steps(
    tokens: Sequence[int],
    piece: Callable[[int], bytes],
    withhold: Callable[[int], None] = lambda count: None,
    earlier: int = 0,
) -> Iterator[list[Grams]]:
    """The n-grams of a text after its ``earlier`` tokens, without those that touch a secret; an empty list is
    a step of preparation.

    ``withhold`` is called with the number of tokens of secrets.
    """
    public = yield from _public(tokens, piece)
    withhold(len(public[earlier:]) - int(public[earlier:].sum()))
    public[: max(0, earlier - ORDERS[0])] = False
    words = np.asarray(tokens, np.uint64)
    for start, end in _runs(public):
        for first in range(start, end, STEP):
            known = min(first - start, ORDERS[0])
            yield _grams(words[first - known : min(end, first + STEP)], known)


def _grams(words: Words, known: int) -> list[Grams]:
    """The n-grams with a continuation after the first ``known`` tokens."""
    found = []
    for n, hashes in hashes_in(words).items():
        first = max(known, n)
        found.append(Grams(n, hashes[first - n : -1], words[first:]))
    return found


def _public(
    tokens: Sequence[int], piece: Callable[[int], bytes]
) -> Generator[list[Grams], None, NDArray[np.bool_]]:
    """A mask of the tokens: True for those that share no byte with a secret."""
    pieces: list[bytes] = []
    for start in range(0, len(tokens), PIECES):
        pieces += map(piece, tokens[start : start + PIECES])
        yield []
    ends = np.fromiter(accumulate(map(len, pieces)), np.int64, len(pieces))
    starts = np.concatenate(([0], ends[:-1]))
    public = np.ones(len(tokens), np.bool_)
    if not _rules.cache_info().currsize:
        for _ in apart(_rules):  # takes some 0.1 s the first time
            yield []
    for spans in secret_spans(b"".join(pieces)):
        for start, end in spans:
            public[np.searchsorted(ends, start, "right") : np.searchsorted(starts, end, "left")] = False
        yield []
    return public


def _runs(public: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The (start, end) of every stretch of True."""
    edges = np.flatnonzero(np.diff(public, prepend=False, append=False)).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


MAX_BYTES = 1024 * 1024
NEAR_S = 0.5
"""seconds that git has to list the files near a directory, before all are listed without it"""


def text_files(path: Path) -> list[Path]:
    """The real paths of the files at and below ``path``, sorted, except those that git ignores, ``.git``,
    symlinks, files whose names stand for secrets, and git's own.

    A file that is named itself is included even if git ignores it. Raises :class:`InvalidOptions` if it is a
    file of secrets or of git, and for a directory whose files git does not list.
    """
    real = path.resolve()
    if real.is_file() and is_secret(real.name):
        raise InvalidOptions(
            f"{path} is, by its name, a file of secrets", "Leave it out: such files are never learnt."
        )
    if real.is_file() and any(map(is_gits_own, real.parents)):
        raise InvalidOptions(f"{path} is a file of git's own", "Name files of a checkout instead.")
    if not real.is_dir():
        return [real] if real.is_file() else []
    if repository_of(real) is None:
        raise InvalidOptions(
            f"{path} is in no git repository, which would say what to leave out",
            "Name the files to learn instead, or run `git init` there.",
        )
    return sorted(_real_files(real, sources.listed(real)))


def near_files(path: Path, is_late: Callable[[], bool] = lambda: False) -> Iterator[Path]:
    """The files of a directory without those of secrets, the nearest first: those of :func:`text_files`, or
    all if git does not list them. Ends once ``is_late`` returns True, which is called at every entry: a
    directory may have a million."""
    real = path.resolve()
    try:
        found = sources.listed(real, NEAR_S)
    except InvalidOptions:
        return _walk(real, is_late)
    found.sort(key=lambda name: (name.count("/"), name))
    return _real_files(real, takewhile(lambda _: not is_late(), found))


def may_learn(path: Path) -> bool:
    """Return True if a file, which need not exist yet, may be learnt without being named by the user: git
    does not ignore it, and its name does not stand for secrets."""
    real = path.resolve()
    if is_secret(path.name) or is_secret(real.name) or ".git" in real.parts:
        return False
    if any(map(is_gits_own, real.parents)):
        return False
    top = repository_of(real.parent)
    return top is None or not sources.ignores(top, real)


def read_text(path: Path) -> str | None:
    """A file's text; None if it is not a regular file, binary, not UTF-8, empty, larger than 1 MiB, or
    unreadable."""
    try:
        content = read_regular(path, MAX_BYTES)
        if not content or len(content) > MAX_BYTES or b"\0" in content:
            return None
        return content.decode()
    except (OSError, UnicodeDecodeError):
        return None


def _real_files(folder: Path, names: Iterable[str]) -> Iterator[Path]:
    """Of the relative paths that git lists, those of files that may be learnt."""
    is_git_directory = cache(is_gits_own)
    for name in dict.fromkeys(names):
        file = os.path.join(folder, name)
        try:
            # A hostile index has names that lead out of the repository.
            is_own = os.path.realpath(file) == file and not os.path.isabs(name)
            is_own = is_own and stat.S_ISREG(os.lstat(file).st_mode)
        except (OSError, ValueError):
            continue
        is_gits = ".git" in name.lower().split("/") or any(map(is_git_directory, Path(file).parents))
        if is_own and not is_gits and not is_secret(os.path.basename(file)):
            yield Path(file)


def _walk(folder: Path, is_late: Callable[[], bool]) -> Iterator[Path]:
    """The files below a directory, ignored ones too, the nearest first."""
    waiting = deque([folder])
    while waiting:
        try:
            with os.scandir(waiting.popleft()) as found:
                entries = sorted(takewhile(lambda _: not is_late(), found), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in takewhile(lambda _: not is_late(), entries):
            if entry.is_dir(follow_symlinks=False) and entry.name != ".git":
                waiting.append(Path(entry.path))
            elif entry.is_file(follow_symlinks=False) and not is_secret(entry.name):
                yield Path(entry.path)
