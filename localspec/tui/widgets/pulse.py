"""The speculation line: each proposer's share of an answer, and the tokens of each round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.style import Style
from rich.text import Text
from textual.widget import Widget

from localspec.protocol.proposer_kinds import KINDS
from localspec.tui.conversation import Answer
from localspec.tui.look import Look

BARS = "▁▂▃▄▅▆▇█"
MODELS = ("draft model", "target")
NAMES = {
    "target": "target",
    **{kind.name: kind.label for kind in sorted(KINDS, key=lambda kind: kind.needs not in MODELS)},
}
"""names of sources in the legend, models first"""
FEWEST = 8
"""least columns for the bars"""


class Pulse(Widget):
    """One line above the prompt, visible while tokens are coloured; painted when an answer grows."""

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

    def show(self, answer: Answer | None) -> None:
        """Show an answer, which may have grown."""
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
        """The sources in their colours, each with its share of the answer's tokens, if known."""
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
    """The last rounds as bars of height by tokens; a full bar is the largest round, at least eight."""
    counts = list(rounds)[-columns:]
    whole = max(len(BARS), *counts)
    return "".join(BARS[max(0, -(-count * len(BARS) // whole) - 1)] for count in counts)
