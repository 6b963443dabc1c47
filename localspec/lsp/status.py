"""The status that the editor shows: model, progress, errors, statistics."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Literal

import msgspec
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.progress import Progress

from localspec.errors import LocalspecError
from localspec.protocol.messages import Completions, ModelProgress
from localspec.wording import duration, underway

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


class Work:
    """One piece of work, which begins when this is made; ``cancel`` is called if the user ends it."""

    def __init__(
        self, progress: Progress | None, title: str, cancel: Callable[[], None] | None = None
    ) -> None:
        self._title, self._cancel = title, cancel
        self._token = str(uuid.uuid4())
        self._shown: Progress | None = None
        self._has_ended = False
        self._latest: tuple[str, float] | None = None
        self._opening = None if progress is None else asyncio.create_task(self._open(progress))

    async def _open(self, progress: Progress) -> None:
        try:
            await progress.create_async(self._token)
        except JsonRpcException:
            return  # the editor refuses it
        if self._has_ended:
            return
        if (cancel := self._cancel) is not None:
            progress.tokens[self._token].add_done_callback(lambda _: cancel())
        begin = types.WorkDoneProgressBegin(title=self._title, cancellable=cancel is not None, percentage=0)
        progress.begin(self._token, begin)
        self._shown = progress
        if self._latest is not None:
            self.report(*self._latest)

    def report(self, message: str, fraction: float) -> None:
        """Show how far the work is, with ``fraction`` from 0 to 1."""
        self._latest = message, fraction
        if self._shown is not None:
            percentage = round(100 * min(1.0, max(0.0, fraction)))
            value = types.WorkDoneProgressReport(message=message, percentage=percentage)
            self._shown.report(self._token, value)

    def end(self) -> None:
        """End the work."""
        self._has_ended = True
        if self._shown is not None:
            self._shown.end(self._token, types.WorkDoneProgressEnd())
            self._shown.tokens.pop(self._token, None)
            self._shown = None


class Loading:
    """Shows that a model is loaded, once, however many completions wait for it."""

    def __init__(self, status: Status, work: Callable[[str], Work]) -> None:
        self._status, self._make = status, work
        self._work: Work | None = None

    @property
    def shown(self) -> bool:
        """True if a load was seen since the last end."""
        return self._work is not None

    def see(self, event: ModelProgress) -> None:
        """Show the progress of an event."""
        if self._work is None:
            self._work = self._make(f"Loading {event.model}")
        self._work.report(event.stage, event.fraction)
        what, share = underway(f"loading {event.model}", event.fraction)
        self._status.loading = what if share is None else f"{what} {share:.0%}"
        self._status.publish()

    def end(self) -> None:
        """Remove the report: the model is loaded, or no completion waits for it any more."""
        if self._work is not None:
            self._work.end()
            self._work = self._status.loading = None
            self._status.publish()
