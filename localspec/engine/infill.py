"""The parts of a gap's surroundings that fit into its prompt. Other files are cut first, then the text far
from the cursor. The places of the cuts change seldom, so that cells of the last keystroke can be reused."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from localspec.completion.context import Steady, fewer_before, lines_after, lines_before, worth_telling
from localspec.engine.fim import FimFormat
from localspec.protocol.requests import File, FimPrompt

SUFFIX_SHARE = 4
"""if not all fits, this fraction of the room, 1 / SUFFIX_SHARE, is kept for the text after the cursor"""
SUFFIX_S = 0.05
"""seconds of prefill for the text after the cursor, if it must be read again after each keystroke"""
SUFFIX_SIZES = (32, 64, 128, 256, 512, 1024, 2048)
"""numbers of tokens after the cursor to choose from in that case"""
FILES_S = 8.0
"""most seconds of prefill for pieces of other files; half of that is read again when some are left out"""
PREFILL_S = 1e-4
"""seconds of prefill per token before they were measured"""
STEP = 64
"""tokens that are cut off at once, if there is room for that"""


class Infill:
    """Encodes gaps in one family's format; ``prefill_s`` returns the seconds of prefill per token."""

    def __init__(self, format: FimFormat, prefill_s: Callable[[], float]) -> None:
        self.format = format
        self._prefill_s = prefill_s
        self._steady, self._quick = Steady(SUFFIX_SIZES), Steady([2**n for n in range(7, 18)])
        self._least: File | None = None  # of the pieces in the prompt, where others were left out

    def encode(self, prompt: FimPrompt, room: int, workspace: str | None) -> list[int]:
        """Return the prompt of a gap, of at most ``room`` tokens, or the few more that mark the gap."""
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
        """Return the tokens before the cursor, cut in steps of whole lines as long as they do not fit."""
        window = lines_before(text)
        tokens = self.format.plain(window, first=True)
        while len(tokens) > room and (fewer := fewer_before(window)) != window:
            window, tokens = fewer, self.format.plain(fewer, first=True)
        return tokens

    def _files(self, prompt: FimPrompt, room: int, workspace: str | None) -> tuple[list[int], list[int]]:
        """Return as many pieces of other files as fit, the most important nearest to the gap, and the tokens
        that the prefix then begins with."""
        if not prompt.extra:
            return [], []
        start, here, title = self.format.frame(prompt, workspace)
        most = room - len(start) - len(here) - len(title)
        if prompt.tidy:
            most = min(most, self._quick.at_most(FILES_S / max(self._prefill_s(), 1e-9)))
        files, parts, sizes = list[File](), list[list[int]](), [0]
        for file in worth_telling(prompt.extra, prompt.prefix, prompt.suffix):
            files.append(file)
            parts.append(self.format.file(file, prompt, workspace))
            sizes.append(sizes[-1] + len(parts[-1]))
            if sizes[-1] > most:
                break
        count = self._steadily(files, sizes, most)
        return ([*start, *chain(*reversed(parts[:count])), *here], title) if count else ([], [])

    def _steadily(self, files: list[File], sizes: list[int], most: int) -> int:
        """Return how many of ``files``, the most important first, are in the prompt; ``sizes[n]`` are the
        tokens of n of them. The least important begins the prompt: it stays while what follows fits into
        ``most``; then half is left out at once, so that the prompts after it begin alike for a while."""
        fits = sum(size <= most for size in sizes) - 1
        least = self._least  # another thread may encode, too
        if least in files[:fits]:
            return files.index(least) + 1
        if fits < len(files):
            fits = max(min(fits, 1), sum(size <= most // 2 for size in sizes) - 1)
        self._least = files[fits - 1] if 0 < fits < len(files) else None
        return fits


def _floor(tokens: int, room: int) -> int:
    """Round ``tokens`` down to whole steps, so that typing a token seldom changes what else fits."""
    step = min(STEP, max(1, room // STEP))
    return max(0, tokens) // step * step


def _last(tokens: list[int], room: int) -> list[int]:
    """Return the last ``room`` of ``tokens``, or fewer, because they are cut off in whole steps."""
    over = max(0, len(tokens) - room)
    step = min(STEP, max(1, room // STEP))
    return tokens[-(-over // step) * step :]
