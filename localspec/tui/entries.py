"""The transcript's entries, one for each message: lines that are painted when they come into view."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.style import Style
from textual.strip import Strip

from localspec.agent.loop import CANCELLED, REFUSED
from localspec.protocol.jsonrpc import shorten as cut
from localspec.tui.conversation import ChatAnswer, ChatCall, ChatQuestion, Said, replace_controls
from localspec.tui.look import Piece
from localspec.tui.painter import GrowingText, Painter
from localspec.wording import describe_missing_template, describe_shortening, duration

if TYPE_CHECKING:
    from localspec.tui.blocks import MarkdownBlock

LONG = 2_000
"""characters; a longer paragraph is painted as plain text while it grows"""
HEAD, RESULT_HEAD = 12, 3
"""lines of a long question, and of a call's result, that are shown until it is opened"""
HEAD_CHARS, CALL_CHARS = 8_000, 4_000
"""characters of it that are wrapped to find them, and of a call with its arguments that are shown"""
THOUGHTS = 300
"""characters at the end of thoughts that are shown until the answer begins"""
REFUSALS = {REFUSED: "refused", f"error: {CANCELLED}": "cancelled"}
"""results of calls that the user did not want, as they are shown"""
ENDINGS = {
    "cancelled": "stopped",
    "failed": "interrupted; press Ctrl-R to answer again",
    "streaming": "another program is still receiving this answer",
    "deadline": "cut short: the deadline has passed",
    "context_full": "cut short: the context is full",
    "length": "cut short: max_tokens is reached",
    "silent": "the answer is empty",
}
"""remarks on endings that the text does not show"""


class FoldedEntry:
    """A question as typed, or a call with its result: of a long one the beginning, until it is opened."""

    def __init__(self, said: ChatQuestion | ChatCall) -> None:
        self.said = said
        self.open = False
        self.lines: list[Strip] = []
        self._painter: Painter | None = None

    def paint(self, painter: Painter) -> None:
        """Paint the shown part: the rest may be a large file."""
        self._painter = painter
        if isinstance(self.said, ChatQuestion):
            self.lines = self._fold(painter, HEAD, painter.look.question, bar=True)
            return
        made = self.said.made
        if made.began is None and made.text is None:
            self.lines = []  # the question before it shows it
            return
        self.lines = painter.text(f"{cut(made.begun, CALL_CHARS)}{made.took}", painter.look.muted)
        if self.said.text:
            self.lines += self._fold(painter, RESULT_HEAD, Style.null(), bar=False)

    def _fold(self, painter: Painter, head: int, style: Style, *, bar: bool) -> list[Strip]:
        text = replace_controls(REFUSALS.get(self.said.text, self.said.text))
        if self.open:
            return painter.text(text, style, bar=bar)
        seen = text[:HEAD_CHARS]
        lines = painter.text(seen, style, bar=bar)
        more = len(lines) - head
        if len(seen) < len(text) or more > 2:
            note = "…" if len(seen) < len(text) else f"… {more} more lines"
            lines[head:] = painter.text(note, painter.look.muted, bar=bar)
        return lines

    def grow(self) -> None:
        """Paint it again, with its result or the time that it takes; does nothing before :meth:`paint`."""
        if self._painter is not None and isinstance(self.said, ChatCall):
            self.paint(self._painter)


class AnswerEntry:
    """An answer: finished blocks, which are painted once, and the open one."""

    def __init__(self, answer: ChatAnswer) -> None:
        self.said = answer
        self._clear()

    def _clear(self) -> None:
        from localspec.tui.blocks import Blocks  # late: the first frame of the chat does not wait for it

        self.lines: list[Strip] = []
        self._finished: list[Strip] = []
        self._blocks = Blocks()
        self._plain: GrowingText | None = None
        self._painted = 0
        self._plainly_painted = ""
        self._run, self._run_begins = 0, 0
        self._painter: Painter | None = None

    def paint(self, painter: Painter) -> None:
        self._clear()
        self._painter = painter
        self.grow()

    def grow(self) -> None:
        """Paint the new text; does nothing before the first :meth:`paint`."""
        painter, answer = self._painter, self.said
        if painter is None:
            return
        text = answer.text[self._painted :]
        self._painted = len(answer.text)
        if painter.by_source:
            self._plain = self._plain or painter.raw()
            self._plain.append(self._pieces(painter, text))
            self.lines = self._plain.lines
        else:
            finished = self._blocks.append(text) if text else []
            if not answer.growing:
                finished += self._blocks.finish()
            for block in finished:
                self._finished += self._space(painter, block, painter.block(block))
                self._plain = None
            self.lines = self._finished + self._paint_open(painter)
        for remark, style in self._remarks(painter):
            self.lines += painter.text(replace_controls(remark), style)

    def _remarks(self, painter: Painter) -> Iterator[Piece]:
        answer, look = self.said, painter.look
        if answer.growing:
            if answer.writing.shown:
                yield f"calls {answer.writing.shown}", look.muted
            elif not answer.text:
                yield answer.thoughts[-THOUGHTS:] or answer.waiting, look.muted
            return
        if answer.error is not None:
            yield f"{answer.error.message}. {answer.error.remedy}", look.error
        elif remark := ENDINGS.get(answer.ending):
            yield remark, look.muted
        if answer.result is not None and (remark := describe_shortening(answer.result)):
            yield remark, look.muted
        if answer.result is not None and answer.result.stats.untemplated:
            yield describe_missing_template(answer.result.model), look.muted
        if answer.result is not None and answer.text and (speed := answer.result.stats.decode_tokens_per_s):
            took = (answer.result.stats.ttft_s or 0) + answer.result.completion_tokens / speed
            yield f"{duration(took)} · {speed:.0f} tok/s", look.muted

    def _paint_open(self, painter: Painter) -> list[Strip]:
        block = self._blocks.open
        if block is None:
            return []
        if block.kind == "code" or len(block.source) > LONG:
            lines = self._plainly(painter, block)
        else:
            lines = painter.block(block)
        return self._space(painter, block, lines)

    def _space(self, painter: Painter, block: MarkdownBlock, lines: list[Strip]) -> list[Strip]:
        """``lines`` with an empty line before them, unless ``block`` is the first or joined."""
        return [painter.blank, *lines] if self._finished and not block.joined else lines

    def _plainly(self, painter: Painter, block: MarkdownBlock) -> list[Strip]:
        """Paint ``block`` without colours, continuing the lines painted before."""
        if self._plain is None or not block.source.startswith(self._plainly_painted):
            self._plain = painter.plain(block)
            self._plainly_painted = ""
        self._plain.append([(block.source[len(self._plainly_painted) :], Style.null())])
        self._plainly_painted = block.source
        return self._plain.lines

    def _pieces(self, painter: Painter, text: str) -> list[Piece]:
        """The new ``text`` in pieces styled by source; text of an unknown source has no colour."""
        pieces: list[Piece] = []
        runs = self.said.runs
        start = len(self.said.text) - len(text)
        position = self._run_begins
        for number in range(self._run, len(runs)):
            self._run, self._run_begins = number, position  # the last one may grow: it is read again
            begin, position = max(position, start), position + runs[number].chars
            if position > begin:
                style = painter.look.sources.get(runs[number].source, Style.null())
                pieces.append((self.said.text[begin:position], style))
        if (begin := max(position, start)) < len(self.said.text):
            pieces.append((self.said.text[begin:], Style.null()))
        return pieces


Entry = FoldedEntry | AnswerEntry


def entry_of(said: Said) -> Entry:
    return AnswerEntry(said) if isinstance(said, ChatAnswer) else FoldedEntry(said)
