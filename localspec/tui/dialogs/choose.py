"""A choice of one item: a list filtered by the typed words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.events import Click
from textual.widgets import Input, Label, OptionList
from textual.widgets.option_list import Option

from localspec.tui.dialogs.dialog import Dialog

WIDEST_NAME = 40


class Choice(NamedTuple):
    """An item; ``value`` is the dialog's result. With a ``problem`` it cannot be chosen."""

    value: str
    name: str
    facts: str = ""
    problem: str = ""
    current: bool = False

    def has(self, words: Sequence[str]) -> bool:
        """True if its text contains all of these lower-case words."""
        seen = f"{self.name} {self.facts} {self.problem}".lower()
        return all(word in seen for word in words)


class ChooseScreen(Dialog[str]):
    """Ends with the chosen value, or with None."""

    BINDINGS = [
        Binding("escape", "dismiss", "Leave", show=False),
        Binding("up", "move('cursor_up')", "Up", show=False),
        Binding("down", "move('cursor_down')", "Down", show=False),
        Binding("pageup", "move('page_up')", "Page up", show=False),
        Binding("pagedown", "move('page_down')", "Page down", show=False),
    ]

    DEFAULT_CSS = """
    ChooseScreen { align: center middle; }
    ChooseScreen > Vertical {
        width: 90%; max-width: 96; height: auto; max-height: 80%; background: $surface;
        border: round $border; border-title-color: $text; border-subtitle-color: $text-muted; padding: 0 1;
    }
    ChooseScreen OptionList {
        height: auto; max-height: 100%; border: none; padding: 0; background: $surface;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    ChooseScreen Label { color: $text-muted; display: none; }
    """

    def __init__(self, title: str, choices: Sequence[Choice]) -> None:
        super().__init__()
        self._heading = title
        self._choices = choices
        self._column = min(max((len(each.name) for each in choices), default=0), WIDEST_NAME)

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            yield Input(placeholder="Type to search", compact=True)
            yield OptionList(markup=False)
            yield Label("Nothing matches.")
        frame.border_title = self._heading
        frame.border_subtitle = "Enter chooses, Esc leaves"

    def on_mount(self) -> None:
        self._options.can_focus = False
        self._show("")
        current = next((n for n, each in enumerate(self._choices) if each.current and not each.problem), None)
        if current is not None:
            self._options.highlighted = current

    @property
    def _options(self) -> OptionList:
        return self.query_one(OptionList)

    def on_input_changed(self, event: Input.Changed) -> None:
        self._show(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._options.action_select()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._choices[int(event.option.id or 0)].value)

    def on_click(self, event: Click) -> None:
        if event.widget is self:
            self.dismiss(None)

    def action_move(self, how: str) -> None:
        """Move the highlight."""
        getattr(self._options, f"action_{how}")()

    def _show(self, filter: str) -> None:
        """List the items that contain all words; the first that can be chosen is highlighted."""
        words = filter.lower().split()
        shown = [n for n, each in enumerate(self._choices) if each.has(words)]
        options = self._options
        options.clear_options()
        options.add_options(self._option(number) for number in shown)
        options.action_first()
        self.query_one(Label).display = not shown

    def _option(self, number: int) -> Option:
        each = self._choices[number]
        text = Text("● " if each.current else "  ")
        text.append(each.name.ljust(self._column))
        if detail := each.problem or each.facts:
            text.append(f"  {detail}", style="" if each.problem else "dim")
        return Option(text, id=str(number), disabled=bool(each.problem))
