"""The conversation on the screen: one widget that paints only visible lines; before it, the welcome.

A widget for each message, or for each paragraph as in Textual's Markdown, would be laid out again whenever an
answer grows; here a new line lays out no text above it. Of 20,000 characters in 200 pieces Textual's Markdown
with its stream makes 15 s of CPU, this widget 1.2 s.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, zip_longest
from typing import Any

from rich.cells import cell_len
from rich.style import Style
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.events import Click
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from localspec.models.catalogue import BUNDLED, CATALOGUE, DEFAULT
from localspec.protocol.messages import ModelDescription, Pairing
from localspec.tui.conversation import Said
from localspec.tui.entries import Entry, FoldedEntry, entry_of
from localspec.tui.look import Look
from localspec.tui.painter import GUTTER, Painter
from localspec.wording import one_line, size

KEYS = """\
Enter sends, Esc stops an answer, Ctrl-J: a new line.
/ lists the commands, @ attaches a file, F1 shows keys."""
REAL = "Ctrl-O: the models here, and larger ones to download."
TOY = f"Ctrl-O gets a real one: {DEFAULT}, {size(CATALOGUE[DEFAULT].size)}."


class Welcome(VerticalScroll, can_focus=False):
    """The model that answers, how to get a better one, and the first keys."""

    DEFAULT_CSS = "Welcome { padding: 1 0 0 2; display: none; scrollbar-size-vertical: 1; }"

    def compose(self) -> ComposeResult:
        yield Static(KEYS, markup=False)

    def show(self, pairing: Pairing, models: Sequence[ModelDescription]) -> None:
        """Show the model in use, which is one of ``models``."""
        model = next((each for each in models if pairing.target in (each.id, *each.names)), None)
        facts, better = "", REAL
        if model is not None and model.store == BUNDLED:
            facts, better = f": a toy ({size(model.size)}), good for tests only", TOY
        elif model is not None:
            facts = f" ({size(model.size)})"
        self.query_one(Static).update(f"{one_line(pairing.target + ' answers' + facts)}.\n{better}\n\n{KEYS}")


class Transcript(ScrollView, can_focus=True):
    """Messages from top to bottom; once scrolled to the end, it follows a growing answer. A click does not
    take the focus: its keys are letters, and a user who has selected text may go on typing."""

    FOCUS_ON_CLICK = False

    DEFAULT_CSS = "Transcript { overflow-x: hidden; overflow-y: scroll; scrollbar-size-vertical: 1; }"
    BINDINGS = [
        Binding("up,k", "choose(-1)", "Previous"),
        Binding("down,j", "choose(1)", "Next"),
        Binding("e", "screen.chosen('edit')", "Edit"),
        Binding("r", "screen.chosen('regenerate')", "Regenerate"),
        Binding("c", "screen.chosen('copy')", "Copy"),
        Binding("o", "open", "Open", tooltip="Open or fold a long question or result"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.raw = False
        self._entries: list[Entry] = []
        self._heights: list[int] = []
        self._tops: list[int] = [0]
        self._painted: set[Entry] = set()
        """entries with lines of the present width and look"""
        self._painter: Painter | None = None
        self._chosen: int | None = None
        self._following = True
        self._arranging = False
        self._shown: list[Strip] = []
        """the lines of the screen"""

    def show(self, said: Iterable[Said], *, keeping: bool = False) -> None:
        """Show these messages, from their end, or ``keeping`` the scroll position. Painted lines of messages
        that were shown before are kept."""
        chosen = self.chosen if keeping else None
        known = {entry.said: entry for entry in self._entries}
        self._entries = [known.get(each) or entry_of(each) for each in said]
        self._painted &= set(self._entries)
        for entry in self._painted:
            entry.grow()
        self._heights = [len(e.lines) if e in self._painted else self._guess(e) for e in self._entries]
        numbers = (number for number, entry in enumerate(self._entries) if entry.said is chosen)
        self._chosen = next(numbers, None)
        self._following = self._following or not keeping
        self._arrange()

    def grow(self) -> None:
        if self._entries and (entry := self._entries[-1]) in self._painted:
            entry.grow()
            self._heights[-1] = len(entry.lines)
        self._arrange()

    def colour(self, raw: bool) -> None:
        self.raw = raw
        self._restyle()

    @property
    def chosen(self) -> Said | None:
        return None if self._chosen is None else self._entries[self._chosen].said

    def choose(self, number: int | None) -> None:
        self._chosen = number
        self._refresh_changed()

    def _look_at(self, number: int) -> None:
        """Scroll as little as necessary to show a message, or its beginning."""
        self._paint(number)
        self._arrange()
        top, bottom = self._tops[number], self._tops[number + 1]
        height = min(bottom - top, self.size.height)
        self.scroll_to_region(Region(0, top, self.size.width, height), animate=False)

    def _guess(self, entry: Entry) -> int:
        width = max(self.size.width - GUTTER, 1)
        return sum(1 + len(line) // width for line in entry.said.text.split("\n"))

    def _arrange(self) -> None:
        """Paint the visible entries and lay out all; the lines on the screen stay in place."""
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
        self.set_reactive(Widget.virtual_size, Size(self.size.width, self._tops[-1]))
        self._arranging = True
        self.scroll_to(y=y)
        self._arranging = False
        self._following = following or y >= self._bottom()
        self.vertical_scrollbar.window_virtual_size = max(self._tops[-1], 1)
        self.vertical_scrollbar.position = self.scroll_y
        self._refresh_changed()

    def _refresh_changed(self) -> None:
        now = self._visible()
        differ = [y for y, (a, b) in enumerate(zip_longest(self._shown, now)) if a is not b and a != b]
        if differ:
            first, last = differ[0], differ[-1]
            self.refresh(Region(0, first, self.size.width, last + 1 - first))

    def _bottom(self) -> int:
        return max(0, self._tops[-1] - self.size.height)

    def _at(self, y: int) -> int | None:
        number = bisect_right(self._tops, y) - 1
        return number if 0 <= number < len(self._entries) else None

    def _paint_seen(self, y: int) -> bool:
        """Paint the entries of the screen that begins at ``y``; returns True if a height has changed."""
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
        self._painted.add(entry)
        self._heights[number] = len(entry.lines)

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self._restyle())

    def on_resize(self) -> None:
        self._restyle()
        self._arrange()

    def _restyle(self) -> None:
        """Take the current width and colours, and paint all again if they have changed."""
        width, look = self.scrollable_content_region.width, Look.read_app(self.app)
        before = self._painter
        if before is None or (width, look, self.raw) != (before.whole, before.look, before.by_source):
            self._painter = Painter(width, look, by_source=self.raw)
            self._painted.clear()
            self._heights = [self._guess(entry) for entry in self._entries]
            self._arrange()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        if self._arranging:
            return
        self._following = new_value >= self.max_scroll_y
        if round(old_value) != round(new_value):
            self._arrange()

    def scroll_to(self, *where: Any, **how: Any) -> None:
        """Scroll without animation, which would paint all lines that it passes."""
        super().scroll_to(*where, **{**how, "animate": False})

    def render_lines(self, crop: Region) -> list[Strip]:
        """The painted lines, without Textual's checks of each for borders, which cost more than painting."""
        self._shown = self._visible()
        strips = self._shown[crop.y : crop.bottom]
        background = self.background_colors[1]
        for line_filter in self.get_line_filters():
            strips = [strip.apply_filter(line_filter, background) for strip in strips]
        first, last = crop.column_span
        return strips if (first, last) == (0, self.region.width) else [s.crop(first, last) for s in strips]

    def render_line(self, y: int) -> Strip:
        """A line with its offset in the whole, which Textual requests for selections."""
        line = y + self.scroll_offset.y
        return self._line(line).apply_offsets(0, line)

    def _visible(self) -> list[Strip]:
        top, selection = self.scroll_offset.y, self.text_selection
        lines = [self._line(line) for line in range(top, top + self.size.height)]
        if selection is not None:
            lines = [self._highlight_selection(strip, selection, top + y) for y, strip in enumerate(lines)]
        return lines

    def _line(self, line: int) -> Strip:
        number, painter = self._at(line), self._painter
        if painter is None:
            return Strip.blank(self.size.width, Style.null())
        if number is None or (entry := self._entries[number]) not in self._painted:
            return painter.blank
        if (within := line - self._tops[number]) >= len(entry.lines):
            return painter.blank
        strip = entry.lines[within]
        return painter.mark_chosen(strip) if number == self._chosen else strip

    def _highlight_selection(self, strip: Strip, selection: Selection, line: int) -> Strip:
        begin, end = columns(strip, selection, line)
        if begin >= end:
            return strip
        style = self.screen.get_component_rich_style("screen--selection")
        before, inside, after = strip.divide([begin, end, strip.cell_length])
        return Strip.join([before, inside.apply_style(style), after])

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The text selected with the mouse: as painted, or for entries out of view their whole text."""
        lines: list[str] = []
        for number, entry in enumerate(self._entries):
            here = range(self._tops[number], self._tops[number + 1])
            spans = [selection.get_span(line) for line in here]
            if entry in self._painted:
                strips = [(self._line(line), line) for line, span in zip(here, spans, strict=True) if span]
                cut = [strip.crop(*columns(strip, selection, line)) for strip, line in strips]
                lines += [strip.text.rstrip() for strip in cut]
            elif any(spans):
                lines += [entry.said.text, ""]
        return "\n".join(lines), "\n"

    def on_click(self, event: Click) -> None:
        if self.has_focus and (number := self._at(event.y + self.scroll_offset.y)) is not None:
            self.choose(number)

    def on_focus(self) -> None:
        if self._chosen is None and self._entries:
            self.choose(self._at(min(self.scroll_offset.y + self.size.height, self._tops[-1]) - 1))

    def on_blur(self) -> None:
        self.choose(None)

    def action_choose(self, by: int) -> None:
        if self._entries:
            now = len(self._entries) if self._chosen is None else self._chosen
            self.choose(number := min(max(now + by, 0), len(self._entries) - 1))
            self._look_at(number)

    def action_open(self) -> None:
        if (number := self._chosen) is not None and isinstance(entry := self._entries[number], FoldedEntry):
            entry.open = not entry.open
            self._painted.discard(entry)
            self._look_at(number)

    def action_scroll_end(self) -> None:
        self._following = True
        self._arrange()


def columns(strip: Strip, selection: Selection, line: int) -> tuple[int, int]:
    """First and last column of the selection in ``strip``, this line of the whole; without the gutter."""
    if (span := selection.get_span(line)) is None:
        return 0, 0
    begin, end = span
    text = strip.text
    return max(cell_len(text[:begin]), GUTTER), strip.cell_length if end == -1 else cell_len(text[:end])
