"""What of a gap's surroundings a prompt holds: what is far from the cursor is cut first, other files before
that. Where something is cut moves seldom, so that what was computed for the last keystroke stays of use."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from localspec.completion.context import Steady, fewer_before, lines_after, lines_before, worth_telling
from localspec.engine.fim import FimFormat
from localspec.protocol.requests import FimPrompt

SUFFIX_SHARE = 4
"""where not all fits, one part in this many is kept for what stands after the cursor"""
SUFFIX_S = 0.05
"""seconds that reading what stands after the cursor may take, where each keystroke makes it be read again"""
SUFFIX_SIZES = (32, 64, 128, 256, 512, 1024, 2048)
"""tokens after the cursor to choose from then"""
PREFILL_S = 1e-4
"""seconds a token of a prompt is taken to need where nothing is known"""
STEP = 64
"""tokens that are cut off at once, where there is room for that"""


class Infill:
    """Encodes gaps in one family's format; ``prefill_s`` says how many seconds reading a token takes."""

    def __init__(self, format: FimFormat, prefill_s: Callable[[], float]) -> None:
        self.format = format
        self._prefill_s = prefill_s
        self._steady = Steady(SUFFIX_SIZES)

    def encode(self, prompt: FimPrompt, room: int, workspace: str | None) -> list[int]:
        """At most ``room`` tokens, but for the few that mark the gap."""
        room = max(1, room - len(self.format.whole(prompt, [], [], [], workspace)))
        prefix, suffix = self._before(prompt.prefix, room), self.format.plain(lines_after(prompt.suffix))
        most = max(room // SUFFIX_SHARE, _floor(room - len(prefix), room))
        if prompt.tidy and not self.format.suffix_first:
            most = min(most, self._steady.at_most(SUFFIX_S / max(self._prefill_s(), 1e-9)))
        suffix = suffix[:most]
        prefix = _last(prefix, room - len(suffix))
        files, title = self._files(prompt, _floor(room - len(prefix) - len(suffix), room), workspace)
        return self.format.whole(prompt, files, title + prefix, suffix, workspace)

    def _before(self, text: str, room: int) -> list[int]:
        """The tokens before the cursor, in whole steps of lines as far as they fit."""
        window = lines_before(text)
        tokens = self.format.prefix(window)
        while len(tokens) > room and (fewer := fewer_before(window)) != window:
            window, tokens = fewer, self.format.prefix(fewer)
        return tokens

    def _files(self, prompt: FimPrompt, room: int, workspace: str | None) -> tuple[list[int], list[int]]:
        """Pieces of other files, the most important nearest to the gap, as many as fit; and what the prefix
        then begins with."""
        if not prompt.extra:
            return [], []
        start, here, title = self.format.frame(prompt, workspace)
        left, parts = room - len(start) - len(here) - len(title), list[list[int]]()
        for file in worth_telling(prompt.extra, prompt.prefix, prompt.suffix):
            part = self.format.file(file, prompt, workspace)
            if len(part) > left:
                break
            left -= len(part)
            parts.insert(0, part)
        return ([*start, *chain(*parts), *here], title) if parts else ([], [])


def _floor(tokens: int, room: int) -> int:
    """``tokens`` in whole steps, so that a token more before the cursor seldom changes what else fits."""
    step = min(STEP, max(1, room // STEP))
    return max(0, tokens) // step * step


def _last(tokens: list[int], room: int) -> list[int]:
    """The end of ``tokens``; what is cut off is cut in steps."""
    over = max(0, len(tokens) - room)
    step = min(STEP, max(1, room // STEP))
    return tokens[-(-over // step) * step :]
