"""What goes on that takes a while: a bar in the place of the status line."""

from __future__ import annotations

from rich.text import Text
from textual.widget import Widget

LONGEST = 40
"""columns of a bar"""


class Progress(Widget):
    """One line, painted when something is told: no timer moves it. It is seen while something goes on."""

    COMPONENT_CLASSES = {"progress--done", "progress--rest"}
    DEFAULT_CSS = """
    Progress { height: 1; color: $text-muted; padding: 0 1; display: none; }
    Progress > .progress--done { color: $primary; }
    Progress > .progress--rest { color: $foreground 30%; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.what = ""
        self.fraction: float | None = None

    def tell(self, what: str, fraction: float | None) -> None:
        """Show how far it has come; ``fraction`` None: nobody knows. Without ``what`` nothing goes on."""
        self.what, self.fraction = what, fraction
        self.display = bool(what)
        self.refresh()

    def render(self) -> Text:
        if self.fraction is None:
            return Text(f"{self.what} …", no_wrap=True, overflow="ellipsis")
        percent = f"{self.fraction:4.0%}"
        columns = min(LONGEST, self.size.width - len(self.what) - len(percent) - 2)
        line = Text(self.what, no_wrap=True, overflow="ellipsis")
        if columns > 0:
            done = min(max(round(self.fraction * columns), 0), columns)
            # Two characters, so that it is a bar without colours, too.
            line.append(" ").append("━" * done, self.get_component_rich_style("progress--done", partial=True))
            line.append("╌" * (columns - done), self.get_component_rich_style("progress--rest", partial=True))
        return line.append(f" {percent}")
