"""Progress that the editor shows while work goes on, if it can."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.progress import Progress

from localspec.lsp.status import Status
from localspec.protocol.messages import ModelProgress
from localspec.wording import underway


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
