"""Next edits in Sweep's prompt form: the edits so far, the region before and now; the region anew.

    <|file_sep|>{path}.diff
    original:
    {line as it was}
    updated:
    {line as it is}
    <|file_sep|>original/{path}
    {region before the edit}
    <|file_sep|>current/{path}
    {region now}
    <|file_sep|>updated/{path}
    {the answer: the region with the edit carried through}<|endoftext|>

The form is that of sweep-next-edit, in its variant without line numbers and cursor.
"""

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .chat import END_OF_TEXT, FILE_SEPARATOR, Example, Piece
from .corpus import SourceFile
from .edits import mentions, rename
from .renames import MOST_MENTIONS, draw_rename, function_examples
from .words import Identifiers

PATTERN_SHARE = 0.35  # of edits that repeat a pattern; the others are renames
FINISHED_SHARE = 0.15  # of edits with nothing left to do: the answer is the region as it is
STRING = re.compile(r"'([^'\"\\\n]*)'")
ASSIGNMENT = re.compile(r"^(\s+)(\w+)( = .*)$")
CALL_END = re.compile(r"^(.*\w\([^()\n]+)\)$")
RETURN = re.compile(r"^(\s+return )([\w.]+)$")


@dataclass(frozen=True, slots=True)
class NextEdit:
    """An edit that was begun: the changed line before and after, and the region in three states."""

    path: str
    line_before: str
    line_after: str
    original: str
    current: str
    updated: str

    def prompt(self) -> str:
        """The text that a model is given."""
        return (
            f"{FILE_SEPARATOR}{self.path}.diff\noriginal:\n{self.line_before}\nupdated:\n{self.line_after}\n"
            f"{FILE_SEPARATOR}original/{self.path}\n{self.original}"
            f"{FILE_SEPARATOR}current/{self.path}\n{self.current}"
            f"{FILE_SEPARATOR}updated/{self.path}\n"
        )

    def example(self) -> Example:
        """The prompt, and the answer that is taught."""
        return [Piece(self.prompt(), False), Piece(self.updated + END_OF_TEXT, True)]


LineEdit = Callable[[str], str]


def line_edits(identifiers: Identifiers, rng: random.Random) -> list[LineEdit]:
    """Edits of one line that are worth repeating; each returns a line that it does not fit as it was."""
    word = identifiers.word()
    function = rng.choice(("str", "int", "list", "len", "tuple", word))
    comment = f"  # {word}"
    return [
        lambda line: STRING.sub(r'"\1"', line),
        lambda line: ASSIGNMENT.sub(r"\1self.\2\3", line),
        lambda line: CALL_END.sub(rf"\1, {word})", line),
        lambda line: CALL_END.sub(rf"\1, {word}=None)", line),
        lambda line: RETURN.sub(rf"\1{function}(\2)", line),
        lambda line: ASSIGNMENT.sub(rf"\1{word}_\2\3", line),
        lambda line: line if "#" in line or not ASSIGNMENT.match(line) else line + comment,
    ]


def begun(path: str, before: list[str], after: list[str], done: int) -> NextEdit:
    """The edit from `before` to `after` with its first `done` changed lines written already."""
    changed = [index for index, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    written = set(changed[:done])
    current = [
        new if index in written else old for index, (old, new) in enumerate(zip(before, after, strict=True))
    ]
    last = changed[done - 1]
    texts = ["".join(f"{line}\n" for line in lines) for lines in (before, current, after)]
    return NextEdit(path, before[last], after[last], *texts)


def changed_lines(before: list[str], after: list[str]) -> int:
    """The number of lines that differ."""
    return sum(old != new for old, new in zip(before, after, strict=True))


def edited(lines: list[str], identifiers: Identifiers, rng: random.Random) -> list[str] | None:
    """The region after a rename or a repeated pattern of at least two changed lines; None without one."""
    if rng.random() < PATTERN_SHARE:
        edits = line_edits(identifiers, rng)
        rng.shuffle(edits)
        for edit in edits:
            after = [edit(line) for line in lines]
            if changed_lines(lines, after) >= 2:
                return after
        return None
    drawn = draw_rename("\n".join(lines), identifiers, rng)
    if drawn is None or not 2 <= mentions(drawn.before, drawn.old) <= MOST_MENTIONS:
        return None
    after = rename(drawn.before, drawn.old, drawn.new).split("\n")
    return after if changed_lines(lines, after) >= 2 else None


def next_edit(source: str, path: str, identifiers: Identifiers, rng: random.Random) -> NextEdit | None:
    """A next edit in a region of source code; None where nothing repeats."""
    lines = source.rstrip("\n").split("\n")
    after = edited(lines, identifiers, rng)
    if after is None:
        return None
    count = changed_lines(lines, after)
    done = count if rng.random() < FINISHED_SHARE else rng.randint(1, count - 1)
    return begun(path, lines, after, done)


def next_edit_examples(
    files: list[SourceFile], lines: tuple[int, int], words: list[str], *, passes: int, seed: str
) -> Iterator[Example]:
    """Next edits in functions of lines[0] to lines[1] lines, in random order, `passes` times."""

    def drawn(source: str, identifiers: Identifiers, rng: random.Random) -> Example | None:
        path = "/".join(identifiers.word() for _ in range(rng.randint(1, 3))) + ".py"
        edit = next_edit(source, path, identifiers, rng)
        return None if edit is None else edit.example()

    seeds = [f"next edits {seed} {number}" for number in range(passes)]
    return function_examples(files, lines, words, drawn, seeds=seeds)
