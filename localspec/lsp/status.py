"""The status that the editor shows: model, progress, errors, statistics."""

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
    """The notification's parameters, as copilot-language-server sends them."""

    busy: bool
    message: str
    kind: Kind


class Status:
    """Sums up this editor's completions; ``report`` is called at every change."""

    def __init__(self, report: Callable[[StatusParams], None]) -> None:
        self._report = report
        self._reported: StatusParams | None = None
        self.asking = 0
        """completions in progress"""
        self.enabled = True
        self.loading: str | None = None
        """the model that is being loaded, with its percentage"""
        self.error: LocalspecError | None = None
        self.model: str | None = None
        self.completions = 0
        self.drafted = 0
        self.accepted = 0
        self.saved_s: float | None = None
        self.off_reason: str | None = None

    def begin(self) -> None:
        """Count a completion that begins."""
        self.asking += 1
        self.publish()

    def end(self) -> None:
        """Count a completion that has ended or was cancelled."""
        self.asking -= 1
        self.publish()

    def count(self, answer: Completions) -> None:
        """Add a completion's statistics."""
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
        """Report the status if it has changed."""
        now = StatusParams(self.asking > 0 or self.loading is not None, self.message, self.kind)
        if now != self._reported:
            self._reported = now
            self._report(now)

    @property
    def kind(self) -> Kind:
        if not self.enabled:
            return "Inactive"
        return "Normal" if self.error is None else "Error"

    @property
    def message(self) -> str:
        """The status in one line."""
        if not self.enabled:
            return "off"
        if self.error is not None:
            return f"{self.error.message}. {self.error.remedy}"
        if self.loading is not None:
            return self.loading
        return " · ".join(self.facts()) or "ready"

    def facts(self) -> list[str]:
        """The model, the share of drafted tokens accepted, and the time saved, as texts."""
        facts = [] if self.model is None else [self.model]
        if self.drafted:
            facts.append(f"{self.accepted / self.drafted:.0%} of drafts accepted")
        if self.saved_s is not None:
            facts.append(f"{duration(abs(self.saved_s))} {'saved' if self.saved_s >= 0 else 'lost'}")
        if self.off_reason is not None:
            facts.append(self.off_reason)
        return facts
