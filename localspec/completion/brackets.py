"""Closing brackets in a text whose opening ones are before it."""

from __future__ import annotations

from localspec.completion.language import closing_quote

PAIRS = {")": "(", "]": "[", "}": "{"}
QUOTES = "\"'`"


def unmatched(text: str) -> frozenset[int]:
    """Offsets of closing brackets whose opening ones are not in ``text``; quoted ones do not count."""
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
    return frozenset(found)


def closes_for_others(text: str, start: int) -> bool:
    """Return True if the wordless text from ``start`` on closes a bracket or quote opened before ``text``."""
    loose = unmatched(text)
    for at in range(start, len(text)):
        if text[at] in PAIRS:
            return at in loose
        if text[at] in QUOTES:
            return text[:at].count(text[at]) % 2 == 0
    return True
