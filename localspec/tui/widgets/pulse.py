"""Speculation at work: who proposed how much of an answer, and how many tokens each round gave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.style import Style
from rich.text import Text
from textual.widget import Widget

from localspec.tui.conversation import Answer
from localspec.tui.look import Look

BARS = "▁▂▃▄▅▆▇█"
NAMES = {"target": "target", "draft": "draft", "prompt-lookup": "lookup", "memory": "memory"}
"""who proposes, as a legend has it"""
FEWEST = 8
"""columns that are worth a line of bars"""


class Pulse(Widget):
    """One line above the prompt, seen while tokens have their colours; painted when an answer grows."""

    DEFAULT_CSS = """
    Pulse { height: 1; padding: 0 1; display: none; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._answer: Answer | None = None
        self._styles: Mapping[str, Style] = {}

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self._restyle())
        self._restyle()

    def tell(self, answer: Answer | None) -> None:
        """Show this answer, which may have grown."""
        self._answer = answer
        if self.display:
            self.refresh()

    def render(self) -> Text:
        answer = self._answer
        line = self._legend(answer)
        if answer is None or not answer.rounds:
            return line
        mean = f" {answer.tokens / answer.all_rounds:.1f} a round"
        room = self.size.width - line.cell_len - 2
        if room < FEWEST:
            return line
        if room < FEWEST + len(mean):
            mean = ""
        return line.append(f"  {bars(answer.rounds, room - len(mean))}{mean}")

    def _legend(self, answer: Answer | None) -> Text:
        """The colours, each with its share of the answer's tokens where that is known."""
        total = sum(answer.sources.values()) if answer is not None else 0
        line = Text(no_wrap=True, overflow="ellipsis")
        for source, name in NAMES.items():
            share = f" {answer.sources[source] / total:.0%}" if answer is not None and total else ""
            line.append("  " if line else "").append(f"{name}{share}", self._styles[source])
        return line

    def _restyle(self) -> None:
        self._styles = Look.seen(self.app).sources
        self.refresh()


def bars(rounds: Iterable[int], columns: int) -> str:
    """The last rounds, each a bar as high as the tokens it gave; eight, or the most, are a whole one."""
    counts = list(rounds)[-columns:]
    whole = max(len(BARS), *counts)
    return "".join(BARS[max(0, -(-count * len(BARS) // whole) - 1)] for count in counts)
