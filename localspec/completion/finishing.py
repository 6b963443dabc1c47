"""The part of a model's text that is shown: without repetitions, half lines and trailing blanks."""

from __future__ import annotations

import re
import unicodedata

from msgspec.structs import replace

from localspec.completion.gap import FOLLOWING, Gap, has_words, indentation
from localspec.completion.stopping import StopRule
from localspec.completion.syntax import closes_for_others
from localspec.protocol.requests import FinishReason, Result

INTERRUPTED = ("deadline", "cancelled")
LONG = 8
"""least characters of a line for which a repetition of the line above is no coincidence"""


def finished(result: Result, gap: Gap) -> Result:
    return replace(result, text=finish(result.text, gap, result.finish_reason))


def finish(text: str, gap: Gap, ended: FinishReason = "stop") -> str:
    """The part of ``text`` to show in ``gap``; may be empty. An interrupted text keeps its whole lines only.
    One that became too long loses its half line too, unless it has no other."""
    text = text.replace("\r\n", "\n")
    cut = StopRule(gap).feed(text)
    # A text that the rule has ended is complete, whatever ended the generation.
    text = text[:cut] if cut is not None else _whole_lines(text, ended)
    own = _without_rest_of_line(text, gap.after.strip())
    in_front = own != text
    text = _without_following(own, gap)
    if gap.repeats(blanks := indentation(text)):
        text = text[len(blanks) :]
    if not in_front or gap.after[:1].isspace():
        # Otherwise the blanks were before the repeated text.
        text = text.rstrip()
    if not text.strip() or _stands_above(text, gap):
        return ""
    return text.replace("\n", gap.line_end)


def _whole_lines(text: str, ended: FinishReason) -> str:
    whole = text.rpartition("\n")[0]
    if ended in INTERRUPTED or (ended in ("length", "context_full") and whole.strip()):
        return whole
    return text


def _without_rest_of_line(text: str, after: str) -> str:
    """``text`` without an end that repeats the rest of the cursor's line."""
    shown = text.rstrip()
    for size in range(min(len(shown), len(after)), 0, -1):
        start = len(shown) - size
        again = shown.endswith(after[:size]) and _is_seam(shown, start) and _is_seam(after, size)
        if again and (has_words(after[:size]) or closes_for_others(shown, start)):
            return shown[:start]
    return text


def _is_seam(text: str, at: int) -> bool:
    """Return True if a text can be cut there: not inside a word or a character."""
    if not 0 < at < len(text):
        return True
    return not re.fullmatch(r"\w\w", text[at - 1 : at + 1]) and not unicodedata.combining(text[at])


def _without_following(text: str, gap: Gap) -> str:
    """``text`` without last lines that repeat the next ones of the file."""
    lines = text.split("\n")
    first = max(0, len(lines) - 2 * FOLLOWING)
    start = sum(len(line) + 1 for line in lines[:first])
    for i, line in enumerate(lines[first:], first):
        tail = [each.rstrip() for each in (gap.before + line if i == 0 else line, *lines[i + 1 :])]
        lines_left = [each for each in tail if each.strip()]
        again = lines_left and _begins_with(gap.following, lines_left, loose=i == 0)
        if again and (has_words("".join(lines_left)) or closes_for_others(text, start)):
            return text[: max(start - 1, 0)]
        start += len(line) + 1
    return text


def _begins_with(following: list[str], lines: list[str], *, loose: bool) -> bool:
    """Return True if the file continues with ``lines``; ``loose``: with any indentation of the first."""
    have = following[: len(lines)]
    if loose and have:
        have, lines = [have[0].lstrip(), *have[1:]], [lines[0].lstrip(), *lines[1:]]
    return have == lines


def _stands_above(text: str, gap: Gap) -> bool:
    """Return True if ``text`` only repeats the lines directly above the cursor."""
    if gap.before.strip():
        return False
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    above = [line.strip() for line in gap.preceding[-len(lines) :]]
    return lines == above and len("".join(lines)) >= LONG and has_words("".join(lines))
