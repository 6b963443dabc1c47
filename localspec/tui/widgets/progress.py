"""The progress bar, shown in the place of the status line."""

from __future__ import annotations

from rich.text import Text
from textual.widget import Widget

LONGEST = 40
"""columns of a bar"""


class Progress(Widget):
    """One line, visible during work and painted only when it changes: no timer moves it."""

    COMPONENT_CLASSES = {"progress--done", "progress--rest"}
    DEFAULT_CSS = """
    Progress { height: 1; color: $text-muted; padding: 0 1; display: none; }
    Progress > .progress--done { color: $primary; }
    Progress > .progress--rest { color: $foreground 30%; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.label = ""
        self.fraction: float | None = None

    def show(self, label: str, fraction: float | None) -> None:
        """Show the progress of work, None if unknown; without ``label``, hide the bar."""
        self.label, self.fraction = label, fraction
        self.display = bool(label)
        self.refresh()

    def render(self) -> Text:
        if self.fraction is None:
            return Text(f"{self.label} …", no_wrap=True, overflow="ellipsis")
        percent = f"{self.fraction:4.0%}"
        columns = min(LONGEST, self.size.width - len(self.label) - len(percent) - 2)
        line = Text(self.label, no_wrap=True, overflow="ellipsis")
        if columns > 0:
            done = min(max(round(self.fraction * columns), 0), columns)
            # Two characters: it is a bar without colours, too.
            line.append(" ").append("━" * done, self.get_component_rich_style("progress--done", partial=True))
            line.append("╌" * (columns - done), self.get_component_rich_style("progress--rest", partial=True))
        return line.append(f" {percent}")
