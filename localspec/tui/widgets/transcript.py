"""The conversation on the screen: one widget that paints only the lines that are looked at.

A widget for each message, or for each paragraph as Textual's Markdown has it, would be laid out again
whenever an answer grows; here the price of a new line does not depend on what stands above it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from textual.binding import Binding
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from localspec.tui.blocks import Block
from localspec.tui.conversation import Answer, Said
from localspec.tui.entries import AnswerEntry, Entry, entry_of, spaced
from localspec.tui.look import Look
from localspec.tui.painter import GUTTER, Painter

KEPT = 40
"""entries that stay painted; others are painted again when they are looked at"""


class Transcript(ScrollView, can_focus=True):
    """Messages from top to bottom; it stays at its end while it is there."""

    DEFAULT_CSS = """
    Transcript {
        overflow-x: hidden;
        overflow-y: scroll;
        scrollbar-size-vertical: 1;
    }
    """
    BINDINGS = [
        Binding("up,k", "choose(-1)", "Previous"),
        Binding("down,j", "choose(1)", "Next"),
        Binding("e", "ask('edit')", "Edit"),
        Binding("r", "ask('regenerate')", "Regenerate"),
        Binding("f", "ask('fork')", "Fork"),
        Binding("c", "ask('copy')", "Copy"),
        Binding("b", "ask('copy_code')", "Copy code"),
        Binding("s", "details", "Statistics"),
    ]

    @dataclass
    class Asked(Message):
        """The person wants ``what`` to be done with a message."""

        what: str
        said: Said

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.raw = False
        self._entries: list[Entry] = []
        self._heights: list[int] = []
        self._tops: list[int] = [0]
        self._painted: dict[Entry, None] = {}
        self._painter: Painter | None = None
        self._chosen: int | None = None
        self._following = True

    # What it shows.

    def show(self, said: Iterable[Said]) -> None:
        """These messages, from their end."""
        self._entries = [entry_of(each, raw=self.raw) for each in said]
        self._painted.clear()
        self._chosen = None
        self._following = True
        self._heights = [self._guess(entry) for entry in self._entries]
        self._arrange()

    def append(self, *said: Said) -> None:
        """More messages, at the end."""
        entries = [entry_of(each, raw=self.raw) for each in said]
        self._entries += entries
        self._heights += [self._guess(entry) for entry in entries]
        self._following = True
        self._arrange()

    def grown(self) -> None:
        """The last answer has grown, or ended."""
        if not self._entries:
            return
        entry = self._entries[-1]
        if entry in self._painted:
            entry.grow()
            self._heights[-1] = entry.height
            self._refine(entry)
        self._arrange()

    def colour(self, raw: bool) -> None:
        """Show answers as the text that came, each token in the colour of who proposed it, or as Markdown."""
        self.raw = raw
        for entry in self._entries:
            if isinstance(entry, AnswerEntry):
                entry.raw = raw
        self._repaint()

    @property
    def chosen(self) -> Said | None:
        """The message that keys act on."""
        return None if self._chosen is None else self._entries[self._chosen].said

    def choose(self, number: int | None) -> None:
        """Make a message the one that keys act on, and show it."""
        self._chosen = number
        if number is not None:
            self._paint(number)
            self._arrange()
            top, bottom = self._tops[number], self._tops[number + 1]
            if top < self.scroll_offset.y:
                self.scroll_to(y=top, animate=False)
            elif bottom > self.scroll_offset.y + self.size.height:
                self.scroll_to(y=min(top, bottom - self.size.height), animate=False)
        self.refresh()

    # Its layout: where each entry begins.

    def _guess(self, entry: Entry) -> int:
        width = max(self.size.width - GUTTER, 1)
        return 1 + sum(1 + len(line) // width for line in entry.said.text.split("\n"))

    def _arrange(self) -> None:
        """Paint what is looked at, and put everything in its place; what is looked at stays where it is."""
        if self._painter is None:
            return
        following = self._following
        anchor = None if following else self._at(self.scroll_offset.y)
        within = 0 if anchor is None else self.scroll_offset.y - self._tops[anchor]
        while True:
            self._tops = list(accumulate((height + 1 for height in self._heights), initial=0))
            y = self._bottom() if anchor is None else self._tops[anchor] + within
            if not self._paint_seen(y):
                break
        self._forget()
        self._resized(Size(self.size.width, self._tops[-1]))
        if y != self.scroll_offset.y:
            self.scroll_to(y=y, animate=False)
        self._following = following
        self.refresh()

    def _resized(self, size: Size) -> None:
        """Only the scroll bar is told: assigning ``virtual_size`` would lay out the whole screen."""
        self.set_reactive(Widget.virtual_size, size)
        self._show_position()

    def _show_position(self) -> None:
        """Set the scroll bar; while an answer grows only if that can be seen, as it is painted anew then."""
        bar, height = self.vertical_scrollbar, max(self.size.height, 1)
        total = max(self.virtual_size.height, 1)
        thumb = height * height // total
        if not self._growing or thumb != height * height // max(bar.window_virtual_size, 1):
            bar.window_virtual_size = total
            bar.position = self.scroll_y

    def _bottom(self) -> int:
        return max(0, self._tops[-1] - self.size.height)

    def _at(self, y: int) -> int | None:
        """The entry on line ``y``."""
        number = bisect_right(self._tops, y) - 1
        return number if 0 <= number < len(self._entries) else None

    def _paint_seen(self, y: int) -> bool:
        """Paint entries between ``y`` and the screen's height below; whether a height has changed."""
        first = max(0, bisect_right(self._tops, y) - 1)
        last = bisect_right(self._tops, y + max(self.size.height, 1) - 1)
        before = self._heights[first:last]
        for number in range(first, min(last, len(self._entries))):
            self._paint(number)
        return self._heights[first:last] != before

    def _paint(self, number: int) -> None:
        entry = self._entries[number]
        if self._painter is None or entry in self._painted:
            return
        entry.paint(self._painter)
        self._painted[entry] = None
        self._heights[number] = entry.height
        self._refine(entry)

    def _forget(self) -> None:
        """Keep no more painted than is of use; the last ones are."""
        for entry in list(self._painted)[: max(0, len(self._painted) - KEPT)]:
            if entry is not self._entries[-1]:
                entry.forget()
                del self._painted[entry]

    def _repaint(self) -> None:
        for entry in self._painted:
            entry.forget()
        self._painted.clear()
        self._arrange()

    def _refine(self, entry: Entry) -> None:
        """Have what was painted roughly painted in full, beside all else."""
        if isinstance(entry, AnswerEntry) and self._painter is not None and (rough := entry.take_rough()):
            self.run_worker(self._refined(entry, rough, self._painter), group="refine")

    async def _refined(self, entry: AnswerEntry, rough: dict[int, Block], painter: Painter) -> None:
        def paint() -> dict[int, list[Strip]]:
            return {n: spaced(painter, block, painter.block(block), n) for n, block in rough.items()}

        painted = await asyncio.to_thread(paint)
        if painter is self._painter and entry in self._painted and entry in self._entries:
            entry.refine(painted)
            self._heights[self._entries.index(entry)] = entry.height
            self._arrange()

    # What Textual asks for.

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self._restyle())

    def on_resize(self) -> None:
        self._restyle()

    def _restyle(self) -> None:
        """Another width, or other colours."""
        width = self.scrollable_content_region.width
        look = Look.seen(self.app)
        if self._painter is None or (width, look) != (self._painter.whole, self._painter.look):
            self._painter = Painter(width, look)
            self._repaint()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        self._following = new_value >= self.max_scroll_y
        self._show_position()
        if not self._following and round(old_value) != round(new_value):
            self._arrange()

    def render_line(self, y: int) -> Strip:
        painter = self._painter
        if painter is None:
            return Strip.blank(self.size.width, self.rich_style)
        line = y + self.scroll_offset.y
        number = self._at(line)
        base = painter.look.base
        if number is None:
            return Strip.blank(self.size.width, base)
        entry, within = self._entries[number], line - self._tops[number]
        if entry not in self._painted or within >= entry.height:
            return Strip.blank(self.size.width, base)
        strip = entry.line(within)
        if number == self._chosen:
            strip = painter.chosen(strip)
        if (selection := self.text_selection) is not None:
            strip = self._selected(strip, selection, line)
        # While an answer grows nobody selects text with the mouse; without places a line stays as it is.
        return strip if self._growing else strip.apply_offsets(0, line)

    @property
    def _growing(self) -> bool:
        last = self._entries[-1].said if self._entries else None
        return isinstance(last, Answer) and last.growing and self._following

    # Selecting with the mouse.

    def _selected(self, strip: Strip, selection: Selection, line: int) -> Strip:
        span = selection.get_span(line)
        if span is None:
            return strip
        begin, end = span
        stop = strip.cell_length if end == -1 else end
        if begin >= stop:
            return strip
        style = self.screen.get_component_rich_style("screen--selection")
        before, inside, after = strip.divide([begin, stop, strip.cell_length])
        return Strip.join([before, inside.apply_style(style), after])

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The text that was selected with the mouse, as it stands on the screen."""
        lines = [
            entry.line(number).text.rstrip() if entry in self._painted and number < height else ""
            for entry, height in zip(self._entries, self._heights, strict=True)
            for number in range(height + 1)
        ]
        return selection.extract("\n".join(lines)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    # Keys and the mouse.

    def on_click(self, event: Click) -> None:
        number = self._at(event.y + self.scroll_offset.y)
        if number is not None:
            self.choose(number)

    def on_focus(self) -> None:
        if self._chosen is None and self._entries:
            self.choose(len(self._entries) - 1)

    def on_blur(self) -> None:
        self.choose(None)

    def action_choose(self, by: int) -> None:
        """The message above or below."""
        if self._entries:
            now = len(self._entries) if self._chosen is None else self._chosen
            self.choose(min(max(now + by, 0), len(self._entries) - 1))

    def action_ask(self, what: str) -> None:
        """Something is to be done with the message that is chosen."""
        if self.chosen is not None:
            self.post_message(self.Asked(what, self.chosen))

    def action_details(self) -> None:
        """Show or hide an answer's statistics, or the rest of a long question."""
        if self._chosen is not None:
            self.details(self._chosen)

    def details(self, number: int) -> None:
        """Show or hide what more there is of a message."""
        entry = self._entries[number]
        if entry in self._painted:
            entry.toggle()
            self._heights[number] = entry.height
            self._arrange()
