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


class CompletionStatus:
    """Sums up completions; ``report`` takes every change, ``work`` shows once that a model is loaded."""

    def __init__(self, report: Callable[[StatusParams], None], work: Callable[[str], Work]) -> None:
        self._report, self._begin_work = report, work
        self._load: Work | None = None
        self._reported: StatusParams | None = None
        self.asking = 0
        self.enabled = True
        self.loading: str | None = None
        self.error: LocalspecError | None = None
        self.model: str | None = None
        self.drafted = 0
        self.accepted = 0
        self.saved_s: float | None = None
        self.off_reason: str | None = None

    def begin(self) -> None:
        self.asking += 1
        self.publish()

    def end(self) -> None:
        self.asking -= 1
        if not self.asking:
            self.end_load()
        self.publish()

    def see_load(self, event: ModelProgress) -> None:
        if self._load is None:
            self._load = self._begin_work(f"Loading {event.model}")
        self._load.report(event.stage, event.fraction)
        what, share = underway(f"loading {event.model}", event.fraction)
        self.loading = what if share is None else f"{what} {share:.0%}"
        self.publish()

    def end_load(self) -> None:
        if self._load is not None:
            self._load.end()
            self._load = self.loading = None
            self.publish()

    def count(self, answer: Completions) -> None:
        self.error = None
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
        kind: Kind = "Normal"
        message = self.loading or " · ".join(self._facts()) or "ready"
        if not self.enabled:
            kind, message = "Inactive", "off"
        elif self.error is not None:
            kind, message = "Error", f"{self.error.message}. {self.error.remedy}"
        now = StatusParams(self.asking > 0 or self.loading is not None, message, kind)
        if now != self._reported:
            self._reported = now
            self._report(now)

    def _facts(self) -> list[str]:
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
        self._token = str(uuid.uuid4())
        self._shown: Progress | None = None
        self._has_ended = False
        self._latest = types.WorkDoneProgressReport(percentage=0)
        opening = None if progress is None else self._open(progress, title, cancel)
        self._opening = opening and asyncio.create_task(opening)

    async def _open(self, progress: Progress, title: str, cancel: Callable[[], None] | None) -> None:
        try:
            await progress.create_async(self._token)
        except JsonRpcException:
            return  # the editor refuses it
        if self._has_ended:
            return
        if cancel is not None:
            progress.tokens[self._token].add_done_callback(lambda _: cancel())
        begin = types.WorkDoneProgressBegin(title=title, cancellable=cancel is not None, percentage=0)
        progress.begin(self._token, begin)
        progress.report(self._token, self._latest)
        self._shown = progress

    def report(self, message: str, fraction: float) -> None:
        """Show how far the work is, with ``fraction`` from 0 to 1."""
        percentage = round(100 * min(1.0, max(0.0, fraction)))
        self._latest = types.WorkDoneProgressReport(message=message, percentage=percentage)
        if self._shown is not None:
            self._shown.report(self._token, self._latest)

    def end(self) -> None:
        self._has_ended = True
        if self._shown is not None:
            self._shown.end(self._token, types.WorkDoneProgressEnd())
            self._shown.tokens.pop(self._token, None)
            self._shown = None
