"""Brackets of a text whose other halves are not in it."""

from __future__ import annotations

import re

from localspec.completion.language import closing_quote

PAIRS = {")": "(", "]": "[", "}": "{"}
QUOTES = "\"'`"
QUOTED_THRICE = re.compile(r"(\"{3}|'{3}|`{3}).*?\1", re.DOTALL)


def loose(text: str) -> tuple[int, frozenset[int]]:
    """Return the number of brackets that ``text`` leaves open, and the offsets of closing ones whose opening
    ones are not in it; quoted ones do not count."""
    open_brackets: list[str] = []
    found = set()
    at = 0
    while at < len(text):
        char = text[at]
        if char in QUOTES:
            line_end = text.find("\n", at)
            closing = closing_quote(text[: line_end if line_end >= 0 else len(text)], at)
            at = max(at, closing)
        elif char in PAIRS.values():
            open_brackets.append(char)
        elif char in PAIRS:
            if open_brackets and open_brackets[-1] == PAIRS[char]:
                open_brackets.pop()
            else:
                found.add(at)
        at += 1
    return len(open_brackets), frozenset(found)


def is_open(text: str) -> bool:
    """Return True if ``text`` leaves a bracket or a triple quote open."""
    outside = QUOTED_THRICE.sub("", text)
    return any(quote * 3 in outside for quote in QUOTES) or loose(outside)[0] > 0


def closes_for_others(text: str, start: int) -> bool:
    """Return True if the wordless text from ``start`` on closes a bracket or quote opened before ``text``."""
    _, closing = loose(text)
    for at in range(start, len(text)):
        if text[at] in PAIRS:
            return at in closing
        if text[at] in QUOTES:
            thrice = text[at] * 3
            return text[:at].count(thrice if text.startswith(thrice, at) else text[at]) % 2 == 0
    return True


def opens(line: str, before: str) -> bool:
    """Return True if the wordless ``line`` behind the text ``before`` opens a bracket, a comment, or a string
    or fence of three quotes."""
    thrice = next((quote * 3 for quote in QUOTES if quote * 3 in line), None)
    if thrice is not None:
        return before.count(thrice) % 2 == 0
    return loose(line)[0] > 0 or "/*" in line or "<!--" in line
