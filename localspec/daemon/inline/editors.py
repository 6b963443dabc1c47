"""The state that completions keep for each client: the speed of its typing, and the newest of each path."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from localspec.daemon.inline.pace import Pace
from localspec.daemon.relay.exchange import Receiver


class Editor:
    """One client's completions."""

    def __init__(self) -> None:
        self.pace = Pace()
        self._newest: dict[str, Receiver] = {}
        """the newest completion of each path"""

    @contextmanager
    def hold(self, path: str | None, request: Receiver) -> Iterator[None]:
        """Register ``request`` as the completion of ``path`` while the context is open; cancel an older
        one."""
        if path is None:
            yield
            return
        if (older := self._newest.get(path)) is not None:
            older.cancel()
        self._newest[path] = request
        try:
            yield
        finally:
            if self._newest.get(path) is request:
                del self._newest[path]
