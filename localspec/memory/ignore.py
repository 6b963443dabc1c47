"""The rules of a ``.gitignore``, matched in time linear in a path's length.

The rules are untrusted, as they come from cloned repositories: each pattern is translated to RE2, which never
backtracks, and their size is bounded. The translation follows git's ``wildmatch.c`` and ``dir.c``, byte by
byte.
"""

from __future__ import annotations

import string
import time
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from threading import Lock
from typing import NamedTuple

import re2

MAX_BYTES = 256 * 1024
"""of a file of rules"""
MAX_GLOBS = 32 * 1024
"""bytes of all patterns with wildcards of one file; patterns without cost next to nothing"""
MAX_PATH = 1024
"""bytes of a path that is matched"""
MATCH_S = 0.1
"""CPU seconds of one match beyond which a file's patterns are no longer matched"""
SET_BYTES = 4 * 1024
"""bytes of the patterns that are matched at once"""
MAX_MEMORY = 4 << 20
"""bytes; the limit of the automaton of one set"""
ENTRY = 256
"""bytes added to the size of each file of rules"""
SPECIAL = frozenset(b"*?[\\")
SLASH, STAR, BACKSLASH, CLOSING, DASH = b"/*\\]-"
ANY = b"(?s:.*)"
CLASSES = {
    b"alnum": string.ascii_letters + string.digits,
    b"alpha": string.ascii_letters,
    b"blank": " \t",
    b"cntrl": "".join(map(chr, (*range(32), 127))),
    b"digit": string.digits,
    b"graph": "".join(map(chr, range(33, 127))),
    b"lower": string.ascii_lowercase,
    b"print": "".join(map(chr, range(32, 127))),
    b"punct": string.punctuation,
    b"space": " \t\n\v\f\r",
    b"upper": string.ascii_uppercase,
    b"xdigit": string.hexdigits,
}


class TooLarge(ValueError):
    """Rules or a path beyond the limits of matching."""


class Rule(NamedTuple):
    """A line, without its marks; an anchored pattern is matched against the whole path, any other against
    the name alone."""

    pattern: bytes
    excludes: bool
    only_directories: bool
    is_anchored: bool


class Rules:
    """The lines of a file. Raises :class:`TooLarge`.

    Translating takes some 3 ms a kilobyte of wildcards, matching a path some 10 µs. Other threads run while
    one matches.
    """

    def __init__(self, content: bytes) -> None:
        if len(content) > MAX_BYTES:
            raise TooLarge("a file of rules that is too long")
        self._rules = [_rule(line) for line in _lines(content)]
        self._literals: dict[tuple[bool, bytes], list[int]] = defaultdict(list)
        self._sets: list[tuple[bool, re2.Set, list[int]]] = []
        self._is_slow = False
        globs: dict[bool, list[tuple[int, bytes]]] = {False: [], True: []}
        for number, rule in enumerate(self._rules):
            if SPECIAL.isdisjoint(rule.pattern):
                self._literals[rule.is_anchored, rule.pattern].append(number)
            else:
                globs[rule.is_anchored].append((number, rule.pattern))
        self.globs = sum(len(pattern) for numbered in globs.values() for _, pattern in numbered)
        """bytes of the patterns with wildcards"""
        if self.globs > MAX_GLOBS:
            raise TooLarge("patterns with too many wildcards")
        for is_anchored, numbered in globs.items():
            for some in _portions(numbered):
                self._sets.append((is_anchored, _compiled(some), [number for number, _ in some]))

    def excludes(self, path: bytes, *, is_directory: bool, but: Collection[int] = ()) -> bool | None:
        """True if the last matching rule excludes a path, False if it includes it, None if none matches.

        ``path`` is relative to the file's directory, with slashes between names. Rules for a directory do not
        match the files in it: check every parent directory as well. ``but``: numbers of rules to disregard.
        Raises :class:`TooLarge` for a path over :data:`MAX_PATH` bytes and where matching takes longer than
        :data:`MATCH_S`; in the latter case every later call raises at once.
        """
        rules = self._rules
        found = (n for n in self.matching(path) if is_directory or not rules[n].only_directories)
        last = max((number for number in found if number not in but), default=None)
        return None if last is None else rules[last].excludes

    def matching(self, path: bytes) -> list[int]:
        """The numbers of the rules whose patterns match the path of a directory; see :meth:`excludes`."""
        if self._is_slow or len(path) > MAX_PATH:
            raise TooLarge("a path that is too long, or patterns that take too long")
        began = time.thread_time()
        subjects = {True: path, False: path[path.rfind(b"/") + 1 :]}
        found = [n for subject in subjects.items() for n in self._literals.get(subject, ())]
        for is_anchored, patterns, numbers in self._sets:
            found += [numbers[match] for match in patterns.Match(subjects[is_anchored]) or ()]
            if time.thread_time() - began > MATCH_S:
                self._is_slow = True
                raise TooLarge("patterns that take too long")
        return found


class _Kept:
    """The rules of the files used last, within the limits of one file: an automaton grows to some kilobytes
    for each byte of a hostile pattern."""

    def __init__(self) -> None:
        self._rules: OrderedDict[bytes, Rules | None] = OrderedDict()
        self._size = self._globs = 0
        self._lock = Lock()

    def get(self, content: bytes) -> Rules | None:
        """The rules of a file; None if they exceed the limits."""
        with self._lock:
            if content in self._rules:
                self._rules.move_to_end(content)
                return self._rules[content]
        try:
            rules = Rules(content)
        except TooLarge:
            rules = None
        with self._lock:
            if content not in self._rules:
                self._rules[content] = rules
                self._count(content, rules, 1)
            while self._size > MAX_BYTES or self._globs > MAX_GLOBS:
                self._count(*self._rules.popitem(last=False), -1)
        return rules

    def _count(self, content: bytes, rules: Rules | None, sign: int) -> None:
        self._size += sign * (ENTRY + len(content))
        self._globs += sign * (0 if rules is None else rules.globs)


rules_of = _Kept().get


def _lines(content: bytes) -> Iterator[bytes]:
    """The lines as git reads them, without comments and empty ones; a line ends at its first NUL."""
    for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        if line and not line.startswith(b"#"):
            yield _trimmed(line.removesuffix(b"\r").split(b"\0")[0])


def _trimmed(line: bytes) -> bytes:
    """Remove trailing spaces, except for one escaped by a backslash."""
    kept = line.rstrip(b" ")
    escapes = len(kept) - len(kept.rstrip(b"\\"))
    if escapes % 2 and len(kept) < len(line):
        kept += b" "
    return kept


def _rule(line: bytes) -> Rule:
    pattern = line.removeprefix(b"!")
    name = pattern.removesuffix(b"/")
    excludes, only_directories = not line.startswith(b"!"), pattern.endswith(b"/")
    return Rule(name.removeprefix(b"/"), excludes, only_directories, b"/" in name)


def _portions(numbered: Iterable[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    """Split into groups of at most :data:`SET_BYTES` bytes of patterns; a longer pattern is a group alone."""
    some: list[tuple[int, bytes]] = []
    length = 0
    for number, pattern in numbered:
        if some and length + len(pattern) > SET_BYTES:
            yield some
            some, length = [], 0
        some.append((number, pattern))
        length += len(pattern)
    if some:
        yield some


def _compiled(numbered: Iterable[tuple[int, bytes]]) -> re2.Set:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors, options.never_capture, options.max_mem = False, True, MAX_MEMORY
    patterns = re2.Set.FullMatchSet(options)
    try:
        for _, pattern in numbered:
            patterns.Add(_translated(pattern))
        patterns.Compile()
    except re2.error as error:
        raise TooLarge(f"patterns that take too much memory: {error}") from None
    return patterns


def _translated(pattern: bytes) -> bytes:
    """Return a pattern as a regular expression; a malformed one matches nothing, as in git."""
    out, at = bytearray(), 0
    while at < len(pattern):
        byte = pattern[at]
        if byte == STAR:
            piece, at = _stars(pattern, at)
        elif byte == ord("["):
            piece, at = _bracket(pattern, at)
        elif byte == ord("?"):
            piece, at = b"[^/]", at + 1
        else:
            at += byte == BACKSLASH
            piece, at = _one_of(pattern[at : at + 1]), at + 1
        out += piece
    return bytes(out)


def _stars(pattern: bytes, at: int) -> tuple[bytes, int]:
    """Translate the asterisks at ``at``: return a regular expression, and the index behind what it covers.

    Two or more match slashes where they take the place of directories.
    """
    end = at
    while end < len(pattern) and pattern[end] == STAR:
        end += 1
    begins = at == 0 or pattern[at - 1] == SLASH
    rest = pattern[end : end + 2]
    if end - at < 2 or not begins or not (not rest or rest.startswith((b"/", b"\\/"))):
        return b"[^/]*", end
    return (b"(?s:.*/)?", end + 1) if rest.startswith(b"/") else (ANY, end)


def _bracket(pattern: bytes, at: int) -> tuple[bytes, int]:
    """Translate the bracket expression at ``at``: return a regular expression, and the index behind it.

    It never matches a slash. A malformed one matches nothing, and takes the rest of the pattern.
    """
    negated = pattern[at + 1 : at + 2] in (b"!", b"^")
    first = at = at + 1 + negated
    members, before = set[int](), 0
    while at < len(pattern) and (pattern[at] != CLOSING or at == first):
        byte, special = pattern[at], pattern[at : at + 2]
        if byte == DASH and before and len(special) == 2 and special[1] != CLOSING:
            at += 1 + (special[1] == BACKSLASH)
            members.update(range(before, pattern[at] + 1) if at < len(pattern) else ())
            before = 0
        elif special == b"[:" and (end := _class_end(pattern, at)):
            if (name := pattern[at + 2 : end - 1]) not in CLASSES:
                return _one_of(b""), len(pattern)
            members.update(CLASSES[name].encode())
            at, before = end, 0
        else:
            at += byte == BACKSLASH
            members.update(pattern[at : at + 1])
            before = pattern[at] if at < len(pattern) else 0
        at += 1
    if at >= len(pattern):
        return _one_of(b""), len(pattern)
    allowed = set(range(256)) - members if negated else members
    return _one_of(bytes(sorted(allowed - {SLASH}))), at + 1


def _class_end(pattern: bytes, at: int) -> int:
    """Return the index of the closing bracket of a ``[:name:]`` that begins at ``at``; 0 if none does."""
    end = pattern.find(b"]", at + 2)
    return end if end >= at + 3 and pattern[end - 1] == ord(":") else 0


@lru_cache(1024)
def _one_of(members: bytes) -> bytes:
    """Return a regular expression for one of these bytes; it matches nothing if there are none."""
    if not members:
        return rb"[^\x00-\xff]"
    hexadecimal = b"".join(b"\\x%02x" % byte for byte in members)
    return hexadecimal if len(members) == 1 else b"[%s]" % hexadecimal
