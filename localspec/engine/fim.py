"""Prompts of fill-in-the-middle: the formats by family of models, and the parts of a gap's surroundings.

A format is the order of tokens, and the ends of an answer. Each is written as in the family's own documents.
A name in angle or square brackets stands for the special token of that name in the vocabulary; text that
users typed never becomes one.

Where the surroundings do not fit into the prompt, other files are cut first, then the text far from the
cursor. The places of the cuts change seldom, so that cells of the last keystroke can be reused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain
from typing import NamedTuple

from localspec.backends.base import ModelVocabulary
from localspec.completion.context import (
    Steady,
    fewer_before,
    lines_after,
    lines_before,
    repository,
    shown_path,
    worth_telling,
)
from localspec.completion.syntax import comment_mark
from localspec.protocol.requests import File, FimPrompt

SPECIAL = re.compile(r"(▁?<[^<>\s{}]+>|\[[A-Z]+\])")
PREFIX, SUFFIX = "{prefix}", "{suffix}"
COMMENT = "#"
"""comment mark before another file if that of the language is not known"""
MARK = "\n\u263a"
"""put before a text, and cut off again, for tokenizers that add a blank to the beginning of a text"""


class FimFamily(NamedTuple):
    """The format that one family was trained with."""

    template: str
    name: str = ""
    """text that the model's name must contain, if its tokens alone do not identify the family"""
    start: str = ""
    """text before other files"""
    file: str = "{comment} {path}\n{text}\n"
    here: str = ""
    """text after other files, before the gap"""
    title: str = ""
    """text at the beginning of the prefix, if there are other files"""
    inside: bool = False
    """True if other files are a part of the prefix"""
    stop: tuple[str, ...] = ()
    """texts that end an answer, and are no part of it"""
    ids: tuple[int, ...] = ()
    """ids of the template's tokens, if other families have tokens of the same names"""


PSM = FimFamily("<|fim_prefix|>{prefix}<|fim_suffix|>{suffix}<|fim_middle|>", inside=True)
FAMILIES = (
    FimFamily(  # Codestral; other models have its tokens, too, but were not trained with them
        "[SUFFIX]{suffix}[PREFIX]{prefix}",
        name="codestral",
        file="+++++ {path}\n{text}\n\n",
        title="+++++ {path}\n",
        inside=True,
        stop=("\n+++++ ",),
    ),
    FimFamily(
        "<fim_suffix>{suffix}<fim_prefix>{prefix}<fim_middle>",
        name="mellum",
        file="<filename>{path}\n{text}\n",
        here="<filename>{path}\n",
    ),
    FimFamily(  # the bundled pair, which was trained with both orders
        "<|fim_suffix|>{suffix}<|fim_prefix|>{prefix}<|fim_middle|>", inside=True, ids=(5, 3, 4)
    ),
    PSM._replace(  # Qwen2.5-Coder, Qwen3-Coder
        start="<|repo_name|>{repo}\n",
        file="<|file_sep|>{path}\n{text}\n",
        here="<|file_sep|>{path}\n",
        inside=False,
    ),
    PSM._replace(file="{comment} {path}\n{text}\n<|file_separator|>", inside=False),  # CodeGemma
    PSM,  # Granite 4 and others
    FimFamily(  # StarCoder 2
        "<fim_prefix>{prefix}<fim_suffix>{suffix}<fim_middle>",
        start="<repo_name>{repo}",
        file="<file_sep>{path}\n{text}",
        here="<file_sep>",
        title="{path}\n",
    ),
    # StarCoder, Granite, Refact
    FimFamily("<fim_prefix>{prefix}<fim_suffix>{suffix}<fim_middle>", inside=True),
    FimFamily(  # DeepSeek-Coder
        "<｜fim▁begin｜>{prefix}<｜fim▁hole｜>{suffix}<｜fim▁end｜>",
        file="{comment}{path}\n{text}\n",
        here="{comment}{path}\n",
    ),
    FimFamily("▁<PRE>{prefix}▁<SUF>{suffix}▁<MID>", inside=True),  # CodeLlama
    FimFamily("<|code_prefix|>{prefix}<|code_suffix|>{suffix}<|code_middle|>", inside=True),  # GLM
    FimFamily("<|prefix|>{prefix}<|suffix|>{suffix}<|middle|>", inside=True),  # Falcon-H1-Tiny-Coder
)
"""the first one that fits a model's name and tokens is used"""


class FimFormat:
    """A family's format with the tokens of one vocabulary."""

    def __init__(self, family: FimFamily, vocabulary: ModelVocabulary, tokens: Mapping[str, int]) -> None:
        self._family, self._vocabulary, self._tokens = family, vocabulary, tokens
        known = [token for token in vocabulary.fim or () if token is not None]
        self.end_tokens = vocabulary.special_tokens | {*tokens.values(), *known}
        self.stop = family.stop
        self.suffix_first = family.template.index(SUFFIX) < family.template.index(PREFIX)
        """True if the cells of the suffix can be reused after a keystroke, because it comes first"""
        start = vocabulary.encode("a", special=False)[:1]
        self._blank = bool(start) and vocabulary.text_of(start[0]).startswith(b" ")
        """True if the tokenizer puts a blank before every text, as SentencePiece's do"""

    def plain(self, text: str, *, first: bool = False) -> list[int]:
        """The tokens of a text, without the blank that the tokenizer may add, unless it is the ``first``."""
        encode = partial(self._vocabulary.encode, special=False)
        if first or not self._blank or not text:
            return encode(text)
        mark, tokens = encode(MARK), encode(MARK + text)
        # The text's beginning may have merged with the mark.
        return tokens[len(mark) :] if tokens[: len(mark)] == mark else encode(text)

    def file(self, file: File, prompt: FimPrompt, workspace: str | None) -> list[int]:
        values = self._values(prompt, workspace)
        values |= {"path": shown_path(file.path, workspace), "text": file.text}
        return self._fill_template(self._family.file, values)

    def frame(self, prompt: FimPrompt, workspace: str | None) -> tuple[list[int], list[int], list[int]]:
        """Return the tokens before other files, after them, and at the beginning of the prefix."""
        values, family = self._values(prompt, workspace), self._family
        start, here, title = (
            self._fill_template(t, values) for t in (family.start, family.here, family.title)
        )
        return start, here, title

    def whole(
        self, prompt: FimPrompt, files: list[int], prefix: list[int], suffix: list[int], workspace: str | None
    ) -> list[int]:
        """Return the whole prompt; ``files`` is empty, or has other files with their frame."""
        values = self._values(prompt, workspace)
        if self._family.inside:
            files, prefix = [], files + prefix
        parts = {PREFIX: prefix, SUFFIX: suffix}
        tokens = list(files)
        for part in SPECIAL.split(self._family.template):
            for piece in re.split(f"({re.escape(PREFIX)}|{re.escape(SUFFIX)})", part):
                tokens += parts[piece] if piece in parts else self._fill_template(piece, values)
        return tokens

    def _values(self, prompt: FimPrompt, workspace: str | None) -> dict[str, str]:
        return {
            "path": shown_path(prompt.path, workspace),
            "repo": repository(workspace),
            "comment": comment_mark(prompt.language, prompt.path) or COMMENT,
        }

    def _fill_template(self, template: str, values: Mapping[str, str]) -> list[int]:
        tokens: list[int] = []
        for part in SPECIAL.split(template):
            if part in self._tokens:
                tokens.append(self._tokens[part])
            elif part:
                tokens += self.plain(part.format_map(values))
        return tokens


def fim_format(vocabulary: ModelVocabulary, model: str) -> FimFormat | None:
    """Return the format that ``model`` was trained with; None if it was not trained to fill in the middle."""
    for family in FAMILIES:
        # Tokens that the backend does not list for FIM count if the model's name matches.
        if family.name in model.lower() and (family.name or vocabulary.fim):
            tokens = _find_tokens(vocabulary, SPECIAL.findall(family.template))
            if tokens is None or family.ids not in ((), tuple(tokens.values())):
                continue
            marks = _find_tokens(vocabulary, SPECIAL.findall(family.start + family.file + family.here))
            if marks is not None:
                return FimFormat(family, vocabulary, tokens | marks)
            if family.name:
                # A model of this name without tokens for other files: those are written as for other models.
                return FimFormat(FimFamily(family.template, inside=True), vocabulary, tokens)
    if (fim := vocabulary.fim) is None:
        return None
    names = SPECIAL.findall(PSM.template)
    tokens = dict(zip(names, (fim.prefix, fim.suffix, fim.middle), strict=True))
    return FimFormat(PSM, vocabulary, tokens)


def _find_tokens(vocabulary: ModelVocabulary, names: Iterable[str]) -> dict[str, int] | None:
    """Return the special tokens of these names; None if one is missing."""
    found = {name: _token(vocabulary, name) for name in names}
    tokens = {name: token for name, token in found.items() if token is not None}
    return tokens if len(tokens) == len(found) else None


def _token(vocabulary: ModelVocabulary, name: str) -> int | None:
    known = [token for token in vocabulary.fim or () if token is not None]
    read = vocabulary.encode(name, special=True)
    spellings = {name.encode(), name.replace("▁", " ").encode()}
    candidates = [*known, *(read if len(read) == 1 else ())]
    real = (token for token in candidates if token < vocabulary.size)
    return next((token for token in real if vocabulary.text_of(token) in spellings), None)


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
