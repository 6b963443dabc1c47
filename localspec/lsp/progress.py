"""Progress that the editor shows while work goes on, if it can."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.progress import Progress


class Work:
    """One piece of work, which begins when this is made; ``cancel`` is called if the user ends it."""

    def __init__(
        self, progress: Progress | None, title: str, cancel: Callable[[], None] | None = None
    ) -> None:
        self._progress = progress
        self._title = title
        self._cancel = cancel
        self._token = str(uuid.uuid4())
        self._begun = self._ended = False
        self._latest: tuple[str, float] | None = None
        self._opening = None if progress is None else asyncio.create_task(self._open(progress))

    async def _open(self, progress: Progress) -> None:
        try:
            await progress.create_async(self._token)
        except JsonRpcException:
            return  # the editor refuses it
        if self._ended:
            return
        if self._cancel is not None:
            ended_by = self._cancel
            progress.tokens[self._token].add_done_callback(lambda _: ended_by())
        begin = types.WorkDoneProgressBegin(
            title=self._title, cancellable=self._cancel is not None, percentage=0
        )
        progress.begin(self._token, begin)
        self._begun = True
        if self._latest is not None:
            self.report(*self._latest)

    def report(self, message: str, fraction: float) -> None:
        """Show how far the work is, with ``fraction`` from 0 to 1."""
        self._latest = message, fraction
        if self._begun and not self._ended and self._progress is not None:
            percentage = round(100 * min(1.0, max(0.0, fraction)))
            value = types.WorkDoneProgressReport(message=message, percentage=percentage)
            self._progress.report(self._token, value)

    def end(self, message: str | None = None) -> None:
        """End the work."""
        if self._begun and not self._ended and self._progress is not None:
            self._progress.end(self._token, types.WorkDoneProgressEnd(message=message))
            self._progress.tokens.pop(self._token, None)
        self._ended = True
