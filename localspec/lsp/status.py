"""What the editor is told of how things are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from localspec.errors import LocalspecError
from localspec.protocol.messages import Completions
from localspec.wording import duration

METHOD = "didChangeStatus"
Kind = Literal["Normal", "Error", "Warning", "Inactive"]


class StatusParams(msgspec.Struct, frozen=True):
    """As copilot-language-server tells it."""

    busy: bool
    message: str
    kind: Kind


class Status:
    """Sums up this editor's completions; ``tell`` hears of every change."""

    def __init__(self, tell: Callable[[StatusParams], None]) -> None:
        self._tell = tell
        self._told: StatusParams | None = None
        self.asking = 0
        """completions that somebody waits for"""
        self.enabled = True
        self.loading: str | None = None
        """what is being loaded, and how far that is"""
        self.error: LocalspecError | None = None
        self.model: str | None = None
        self.completions = 0
        self.drafted = 0
        self.accepted = 0
        self.saved_s: float | None = None
        self.off_reason: str | None = None

    def begin(self) -> None:
        """A completion is asked for."""
        self.asking += 1
        self.publish()

    def end(self) -> None:
        """It has ended, or nobody waits for it."""
        self.asking -= 1
        self.publish()

    def count(self, answer: Completions) -> None:
        """A completion has come."""
        self.error = None
        self.completions += 1
        self.model = answer.result.model or self.model
        if answer.source != "model":
            return
        stats = answer.stats
        self.drafted += stats.drafted
        self.accepted += stats.accepted
        self.off_reason = stats.speculation_off_reason
        if stats.time_saved_s is not None:
            self.saved_s = (self.saved_s or 0.0) + stats.time_saved_s

    def publish(self) -> None:
        """Tell it, if it is another than before."""
        now = StatusParams(self.asking > 0 or self.loading is not None, self.message, self.kind)
        if now != self._told:
            self._told = now
            self._tell(now)

    @property
    def kind(self) -> Kind:
        if not self.enabled:
            return "Inactive"
        return "Normal" if self.error is None else "Error"

    @property
    def message(self) -> str:
        """One line."""
        if not self.enabled:
            return "off"
        if self.error is not None:
            return f"{self.error.message}. {self.error.remedy}"
        if self.loading is not None:
            return self.loading
        return " · ".join(self.facts()) or "ready"

    def facts(self) -> list[str]:
        """The model, how many of its drafts were accepted, and what that saved."""
        facts = [] if self.model is None else [self.model]
        if self.drafted:
            facts.append(f"{self.accepted / self.drafted:.0%} of drafts accepted")
        if self.saved_s is not None:
            facts.append(f"{duration(abs(self.saved_s))} {'saved' if self.saved_s >= 0 else 'lost'}")
        if self.off_reason is not None:
            facts.append(self.off_reason)
        return facts
