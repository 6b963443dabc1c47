"""A model that is being loaded while a completion waits."""

from __future__ import annotations

from collections.abc import Callable

from localspec.lsp.progress import Work
from localspec.lsp.status import Status
from localspec.protocol.messages import ModelProgress
from localspec.wording import underway


class Loading:
    """Shows one progress report, however many completions wait."""

    def __init__(self, status: Status, work: Callable[[str], Work]) -> None:
        self._status = status
        self._make = work
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
            self._work = None
            self._status.loading = None
            self._status.publish()
