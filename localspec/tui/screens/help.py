"""The help page: all commands and all keys, read from their definitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import Click
from textual.widgets import Static

from localspec.tui.commands.command import COMMANDS, Command
from localspec.tui.dialogs.dialog import Dialog


class HelpScreen(Dialog[None]):
    """A page that scrolls; Esc leaves it. ``keys`` are bindings by the place where they work."""

    BINDINGS = [Binding("escape,q,f1", "dismiss", "Back")]
    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen VerticalScroll {
        width: 90%; max-width: 96; height: 90%; background: $surface; padding: 0 1;
        border: round $border; border-title-color: $text; border-subtitle-color: $text-muted;
        scrollbar-size-vertical: 1;
    }
    HelpScreen .heading { text-style: bold; color: $primary; margin-top: 1; }
    """

    def __init__(self, keys: Mapping[str, Sequence[BindingType]]) -> None:
        super().__init__()
        self._keys = keys

    def compose(self) -> ComposeResult:
        with VerticalScroll() as page:
            page.border_title, page.border_subtitle = "Help", "Esc leaves"
            yield Static("Commands", classes="heading")
            yield Static(_table(map(_row, COMMANDS.all())))
            for where, bindings in self._keys.items():
                yield Static(where, classes="heading")
                yield Static(_table(_of_no_command(bindings)))

    def on_click(self, event: Click) -> None:
        if event.widget is self:
            self.dismiss()


# All cells are Text: brackets in them are no markup.


def _row(command: Command) -> tuple[Text, ...]:
    argument = f"{command.argument}  " if command.argument else ""
    meaning = Text.assemble((argument, "bold"), command.help)
    return Text(f"/{command.name}"), Text(command.key), meaning


def _of_no_command(bindings: Sequence[BindingType]) -> Iterator[tuple[Text, ...]]:
    for binding in bindings:
        if isinstance(binding, Binding) and not binding.action.startswith("run("):
            yield Text(binding.key.replace(",", ", ")), Text(binding.tooltip or binding.description)


def _table(rows: Iterable[tuple[Text, ...]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    for row in rows:
        if not table.columns:
            for _ in row[:-1]:
                table.add_column(no_wrap=True, style="bold")
            table.add_column(ratio=1)
        table.add_row(*row)
    return table
