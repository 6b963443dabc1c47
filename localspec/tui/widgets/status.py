"""The status line: which models, how fast, what speculation did and why."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static

from localspec.protocol.sessions import Pairing
from localspec.tui.conversation import Answer
from localspec.wording import duration


class Status(Static):
    """One line; what is cut off at its end is what matters least."""

    DEFAULT_CSS = """
    Status { height: 1; color: $text-muted; padding: 0 1; text-overflow: ellipsis; text-wrap: nowrap; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self.pairing: Pairing | None = None
        self.doing = ""
        """what goes on, or why nothing does; in the place of all else"""

    def tell(self, answer: Answer | None) -> None:
        """Show what is known of the last answer."""
        parts = [self.doing] if self.doing else [*self._models(), *self._figures(answer)]
        self.update(Text(" · ".join(parts), no_wrap=True, overflow="ellipsis"))

    def _models(self) -> list[str]:
        pairing = self.pairing
        if pairing is None:
            return []
        names = pairing.target if pairing.draft is None else f"{pairing.target} + {pairing.draft}"
        return [names, pairing.proposer]

    def _figures(self, answer: Answer | None) -> list[str]:
        if answer is None:
            return []
        if answer.growing:
            return [f"{answer.tokens} tokens", *([f"{answer.speed:.0f} tok/s"] if answer.speed else [])]
        if answer.result is None:
            return []
        stats = answer.result.stats
        figures = []
        if stats.decode_tokens_per_s:
            figures.append(f"{stats.decode_tokens_per_s:.0f} tok/s")
        if stats.acceptance_rate is not None:
            figures.append(f"{stats.acceptance_rate:.0%} accepted")
        if stats.time_saved_s is not None and stats.drafted:
            what = "saved" if stats.time_saved_s >= 0 else "lost"
            figures.append(f"{duration(abs(stats.time_saved_s))} {what}")
        if stats.speculation_off_reason:
            figures.append(stats.speculation_off_reason)
        return figures
