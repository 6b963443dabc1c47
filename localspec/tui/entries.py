"""What the transcript shows, one entry for each message: lines that are painted when they are looked at."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from rich.style import Style
from textual.strip import Strip

from localspec.tui.conversation import Answer, Question, Said, shown
from localspec.tui.painter import Painter
from localspec.tui.plain import Piece, Plain
from localspec.wording import counted

if TYPE_CHECKING:
    from localspec.tui.blocks import Block, Blocks

LONG = 2_000
"""characters of a block that are painted plainly while it grows, and in their colours once it has ended"""
AT_ONCE = 8_000
"""characters at the end of a text that are painted in full when all of it has come at once"""
HEAD = 12
"""lines of a long question that are shown"""
HEAD_CHARS = 8_000
"""characters of it that are looked at for them"""
ENDINGS = {
    "cancelled": "stopped",
    "failed": "broken off; answer anew with ctrl+r",
    "streaming": "it is still being answered, by another program",
    "deadline": "cut short: its time was up",
    "context_full": "cut short: the context is full",
    "length": "cut short: it is as long as it was to be",
    "silent": "the model had nothing to say",
}
"""what is said of an ending that the text does not show"""


class QuestionEntry:
    """What the person said, as it was typed; the beginning of it, where it is long."""

    def __init__(self, question: Question) -> None:
        self.said = question
        self.detailed = False
        """whether a long one is shown whole"""
        self._lines: list[Strip] = []
        self._painter: Painter | None = None

    @property
    def height(self) -> int:
        return len(self._lines)

    def line(self, number: int) -> Strip:
        return self._lines[number]

    def paint(self, painter: Painter) -> None:
        """All of it that is shown, anew: what is folded away may be a large file."""
        self._painter, text = painter, shown(self.said.text)
        seen = text if self.detailed else text[:HEAD_CHARS]
        self._lines = painter.text(seen, painter.look.question, bar=True)
        more, cut = len(self._lines) - HEAD, len(seen) < len(text)
        if cut or (more > 2 and not self.detailed):
            told = "… s shows the rest" if cut else f"… {more} more lines; s shows them"
            self._lines[HEAD:] = painter.text(told, painter.look.muted, bar=True)

    def grow(self) -> None:
        """It never does."""

    def toggle(self) -> None:
        """Show all of it, or only the beginning."""
        self.detailed = not self.detailed
        if self._painter is not None:
            self.paint(self._painter)

    def forget(self) -> None:
        """Nobody looks at it."""
        self._lines, self._painter = [], None


class AnswerEntry:
    """What the model says: finished blocks, which are painted once, and the open one.

    Blocks that are long, or many, are painted roughly at first; who takes them with :meth:`take_rough` paints
    them in full, be it in a thread, and puts them in their places with :meth:`refine`.
    """

    def __init__(self, answer: Answer, *, raw: bool = False) -> None:
        self.said = answer
        self.raw = raw
        self.detailed = False
        """whether its statistics are shown"""
        self._rough: dict[int, Block] = {}
        self._clear()

    def _clear(self) -> None:
        self._parts: list[list[Strip]] = []
        self._tops = [0]
        self._open: list[Strip] = []
        self._notes: list[Strip] = []
        self._blocks = new_blocks()
        self._plain: Plain | None = None
        self._painted = 0
        self._plainly_painted = ""
        self._run, self._run_begins = 0, 0
        self._painter: Painter | None = None
        self._rough.clear()

    @property
    def height(self) -> int:
        return self._tops[-1] + len(self._open) + len(self._notes)

    def line(self, number: int) -> Strip:
        if (beyond := number - self._tops[-1]) >= 0:
            opened = len(self._open)
            return self._open[beyond] if beyond < opened else self._notes[beyond - opened]
        part = bisect_right(self._tops, number) - 1
        return self._parts[part][number - self._tops[part]]

    def paint(self, painter: Painter) -> None:
        """All of it, anew."""
        self._clear()
        self._painter = painter
        self.grow()

    def grow(self) -> None:
        """What has come since; nothing for one that nobody looked at yet."""
        painter, answer = self._painter, self.said
        if painter is None:
            return
        text = answer.text[self._painted :]
        self._painted = len(answer.text)
        self.note()
        if self.raw:
            self._grow_raw(painter, text)
            return
        finished = self._blocks.append(text) if text else []
        if not answer.growing:
            finished += self._blocks.finish()
        after = sum(len(block.source) for block in finished)
        for block in finished:
            after -= len(block.source)
            self._finish(painter, block, rough=len(block.source) > LONG or after > AT_ONCE)
        self._paint_open(painter)

    def note(self) -> None:
        """Paint anew what stands below it: what is waited for, how it ended, what it took."""
        if self._painter is not None:
            self._notes = [
                line
                for text, style in self._remarks(self._painter)
                for line in self._painter.text(shown(text), style)
            ]

    def _remarks(self, painter: Painter) -> Iterator[Piece]:
        answer, look = self.said, painter.look
        if answer.growing:
            if not answer.text:
                yield answer.waiting, look.muted
            return
        if answer.error is not None:
            yield f"{answer.error.message}. {answer.error.remedy}", look.error
        elif remark := ENDINGS.get(answer.ending):
            yield remark, look.muted
        if answer.result is not None and (dropped := answer.result.stats.truncated_messages):
            yield f"the context is full: the model read without {counted(dropped, 'old message')}", look.muted
        if self.detailed:
            yield answer.statistics, look.muted

    def toggle(self) -> None:
        """Show its statistics, or no longer."""
        self.detailed = not self.detailed
        self.note()

    def forget(self) -> None:
        """Nobody looks at it: what is painted goes."""
        self._clear()

    def take_rough(self) -> dict[int, Block]:
        """The blocks that are painted roughly, by their number; each is given once."""
        taken, self._rough = self._rough, {}
        return taken

    def refine(self, painted: dict[int, list[Strip]]) -> None:
        """Put painted blocks in their places."""
        for number, lines in painted.items():
            self._parts[number] = lines
        self._tops = list(accumulate(map(len, self._parts), initial=0))

    def _finish(self, painter: Painter, block: Block, *, rough: bool) -> None:
        number = len(self._parts)
        if rough:
            self._rough[number] = block
            lines = self._plainly(painter, block)
        else:
            lines = painter.block(block)
        self._plain = None
        self._parts.append(spaced(painter, block, lines, number))
        self._tops.append(self._tops[-1] + len(self._parts[-1]))

    def _paint_open(self, painter: Painter) -> None:
        block = self._blocks.open
        if block is None:
            self._open = []
            return
        if block.kind == "code" or len(block.source) > LONG:
            lines = self._plainly(painter, block)
        else:
            lines = painter.block(block)
        self._open = spaced(painter, block, lines, len(self._parts))

    def _plainly(self, painter: Painter, block: Block) -> list[Strip]:
        """``block`` without its colours; what was painted of it before stays."""
        if self._plain is None or not block.source.startswith(self._plainly_painted):
            self._plain = painter.plain(block)
            self._plainly_painted = ""
        self._plain.append([(block.source[len(self._plainly_painted) :], Style.null())])
        self._plainly_painted = block.source
        return self._plain.lines

    def _grow_raw(self, painter: Painter, text: str) -> None:
        if self._plain is None:
            self._plain = painter.raw()
        self._plain.append(self._pieces(painter, text))
        self._open = self._plain.lines

    def _pieces(self, painter: Painter, text: str) -> list[Piece]:
        """The new ``text`` by who proposed it; what is not known has no colour."""
        pieces: list[Piece] = []
        runs = self.said.runs
        start = len(self.said.text) - len(text)
        position = self._run_begins
        for number in range(self._run, len(runs)):
            self._run, self._run_begins = number, position  # the last one may grow: it is looked at again
            begin, position = max(position, start), position + runs[number].chars
            if position > begin:
                style = painter.look.sources.get(runs[number].source, Style.null())
                pieces.append((self.said.text[begin:position], style))
        if (begin := max(position, start)) < len(self.said.text):
            pieces.append((self.said.text[begin:], Style.null()))
        return pieces


Entry = QuestionEntry | AnswerEntry


def entry_of(said: Said, *, raw: bool = False) -> Entry:
    """The entry that shows ``said``."""
    return QuestionEntry(said) if isinstance(said, Question) else AnswerEntry(said, raw=raw)


def spaced(painter: Painter, block: Block, lines: list[Strip], number: int) -> list[Strip]:
    """With the empty line that stands between a block and the one before; ``number`` 0 is the first."""
    return [painter.blank, *lines] if number and not block.joined else lines


def new_blocks() -> Blocks:
    """The parser is imported when something is said: the first picture of a chat does not wait for it."""
    from localspec.tui.blocks import Blocks

    return Blocks()
